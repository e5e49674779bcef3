"""Streams in pieces: any chopping of the bytes, any chopping of the elements."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_splitzip import (
    ChecksumError,
    Codebook,
    CodebookBank,
    Codec,
    FormatError,
    LayoutMismatch,
    LimitError,
    SplitZipError,
    StreamDecoder,
    StreamEncoder,
    TruncatedError,
    compress,
    decompress,
)

WINDOW = Codebook("bf16", range(113, 129))


def tensor(shape=(7, 11, 13), seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(ml_dtypes.bfloat16)


def cut(data, generator, pieces):
    ends = np.sort(generator.integers(0, len(data) + 1, pieces))
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 20), max_size=6),
    frame_elems=st.integers(1, 700),
    pieces=st.integers(0, 60),
    seed=st.integers(0, 1000),
    checksum=st.booleans(),
)
def test_any_chopping_of_the_bytes(shape, frame_elems, pieces, seed, checksum):
    generator = np.random.default_rng(seed)
    x = tensor(shape, seed)
    # At least one element a frame in twenty, so that the stream stays short.
    frame_elems = max(frame_elems, x.size // 20 + 1)
    data = b"".join(f.tobytes() for f in Codec(WINDOW, checksum=checksum).encode_frames(x, frame_elems=frame_elems))
    decoder = StreamDecoder()
    completed = 0
    for piece in cut(data, generator, pieces):
        completed += decoder.feed(piece)
    assert decoder.finished
    assert completed == len(decoder.frames) == max(1, -(-x.size // frame_elems))
    assert np.array_equal(decoder.result().view(np.uint16), x.view(np.uint16))
    assert decoder.result().shape == tuple(shape)


def test_byte_by_byte_and_progress():
    x = tensor((3, 700))
    data = compress(x, codebook=WINDOW, frame_elems=1000)
    out = np.zeros_like(x)
    decoder = StreamDecoder(out=out)
    seen = []
    for k in range(len(data)):
        assert not decoder.finished
        if decoder.feed(data[k : k + 1]):
            seen.append(decoder.decoded_elems)
            assert np.array_equal(out.ravel()[: seen[-1]].view(np.uint16), x.ravel()[: seen[-1]].view(np.uint16))
    assert seen == [1000, 2000, 2100]
    assert decoder.result() is out


def test_torch_and_jax_outputs():
    torch = pytest.importorskip("torch")
    x = torch.randn(40, 50, dtype=torch.bfloat16)
    decoder = StreamDecoder(like="torch")
    decoder.feed(compress(x, codebook=WINDOW))
    assert torch.equal(decoder.result(), x)
    jax = pytest.importorskip("jax")
    decoder = StreamDecoder(like="jax")
    decoder.feed(compress(x, codebook=WINDOW))
    assert isinstance(decoder.result(), jax.Array)


def test_it_fails_once_and_for_all():
    data = bytearray(compress(tensor(), codebook=WINDOW, frame_elems=300))
    data[200] ^= 1
    decoder = StreamDecoder()
    with pytest.raises(ChecksumError) as first:
        decoder.feed(data)
    for again in (lambda: decoder.feed(b""), lambda: decoder.feed(data), decoder.result):
        with pytest.raises(ChecksumError) as later:
            again()
        assert later.value is first.value


def test_what_is_refused():
    data = compress(tensor(), codebook=WINDOW, frame_elems=500, tag=3)
    with pytest.raises(FormatError, match="follow the last frame"):
        StreamDecoder().feed(data + b"x")
    decoder = StreamDecoder()
    decoder.feed(data)
    with pytest.raises(FormatError, match="follow"):
        decoder.feed(b"x")
    decoder = StreamDecoder()
    decoder.feed(data[:-1])
    with pytest.raises(TruncatedError):
        decoder.result()
    with pytest.raises(FormatError, match="SPLZ"):
        StreamDecoder().feed(b"GET / HTTP/1.1" * 20)
    for expected in ({"expected_tag": 4}, {"expected_shape": (1,)}, {"expected_dtype": "fp16"}):
        with pytest.raises(LayoutMismatch):
            StreamDecoder(**expected).feed(data)
    with pytest.raises(LimitError):
        StreamDecoder(max_bytes=1000).feed(data)
    with pytest.raises(LayoutMismatch):
        StreamDecoder(out=np.empty((7, 11, 13), np.float16)).feed(data)
    decoder = StreamDecoder(expected_tag=3, expected_shape=(7, 11, 13), expected_dtype="bf16")
    assert decoder.feed(data) == 3


def test_frames_lost_repeated_or_swapped():
    frames = [f.tobytes() for f in Codec(WINDOW).encode_frames(tensor(), frame_elems=300)]
    other = [f.tobytes() for f in Codec(WINDOW).encode_frames(tensor((1001,)), frame_elems=300)]
    for broken in (
        frames[1:],
        [frames[0], *frames[2:]],
        [frames[0], frames[0], *frames[1:]],
        [frames[1], frames[0], *frames[2:]],
        [frames[0], *other[1:]],
    ):
        with pytest.raises(SplitZipError):
            StreamDecoder().feed(b"".join(broken))


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 3000), frame_elems=st.integers(100, 1000), pieces=st.integers(0, 12), seed=st.integers(0, 100))
def test_encoding_as_elements_come_gives_the_same_frames(n, frame_elems, pieces, seed):
    generator = np.random.default_rng(seed)
    x = tensor((n,), seed)
    codec = Codec(WINDOW)
    expected = [f.tobytes() for f in codec.encode_frames(x, frame_elems=frame_elems, tag=9)]
    encoder = StreamEncoder(codec, (n,), "bf16", frame_elems=frame_elems, tag=9)
    frames = []
    for piece in cut(x, generator, pieces):
        frames += [frame.tobytes() for frame in encoder.feed(piece)]
    if n == 0:
        frames += [frame.tobytes() for frame in encoder.feed(x)]
    assert encoder.finished
    assert frames[: len(expected)] == expected
    assert len(frames) == len(expected)


def test_encoder_does_not_keep_the_callers_buffer():
    """A piece may be overwritten once its frames are taken."""
    x = tensor((1000,))
    encoder = StreamEncoder(Codec(WINDOW), (1000,), "bf16", frame_elems=600)
    buffer = np.empty(250, ml_dtypes.bfloat16)
    frames = []
    for k in range(4):
        buffer[:] = x[250 * k : 250 * (k + 1)]
        frames += [frame.tobytes() for frame in encoder.feed(buffer)]
        buffer[:] = 0
    assert np.array_equal(decompress(b"".join(frames)).view(np.uint16), x.view(np.uint16))


def test_encoder_with_bits_bank_and_refusals():
    bank = CodebookBank({"default": WINDOW, "3/k": Codebook("bf16", range(100, 116))})
    encoder = StreamEncoder(Codec(bank), (4, 5), "bf16", (3, "k"))
    (frame,) = encoder.feed(tensor((20,)).view(np.uint16))
    assert frame.info.shape == (4, 5)
    with pytest.raises(SplitZipError, match="21 elements for a tensor of 20"):
        encoder.feed(np.zeros(1, np.uint16))
    encoder = StreamEncoder(Codec(WINDOW), (20,), "bf16")
    with pytest.raises(SplitZipError, match="this piece is fp16"):
        encoder.feed(np.zeros(1, np.float16))
    with pytest.raises(LimitError):
        StreamEncoder(Codec(WINDOW), (1,) * 9, "bf16")
