"""Encoding and decoding: lossless on anything, the same bytes from every backend and thread count."""

import os
import platform
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import xxhash
from golden import GOLDEN, GOLDEN_BITS, GOLDEN_BOOK
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_splitzip import (
    BufferTooSmall,
    Codebook,
    CodebookBank,
    Codec,
    EscapeMonitor,
    LayoutMismatch,
    LimitError,
    SplitZipError,
    compress,
    decompress,
    inspect,
    max_encoded_size,
)
from sprigs_splitzip.backends import has_numba
from sprigs_splitzip.floats import FORMATS, OPAQUE

FLOATS = [form for form in FORMATS if form is not OPAQUE]
WINDOW = Codebook("bf16", range(113, 129))
numba_needed = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


def books(form, code_bits):
    """A window, two runs, and as many runs as there are values."""
    size = 1 << code_bits
    top = form.n_exponents
    yield Codebook(form, range(top - size, top), code_bits)
    yield Codebook(form, [0, *range(top - size, top - 1)] if top > size else range(size), code_bits)
    step = max(1, min(2, top // size))
    yield Codebook(form, range(0, step * size, step), code_bits)


def roundtrip(bits, dtype, codec):
    frame = codec.encode(bits, dtype=dtype)
    restored = codec.decode(frame)
    assert restored.shape == bits.shape
    assert np.array_equal(restored.view(bits.dtype), bits)
    return frame.tobytes()


@pytest.mark.parametrize("form", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("code_bits", [3, 4])
def test_every_pattern_with_every_kind_of_codebook(form, code_bits):
    """All 256 or 65,536 patterns (FP32: a grid of upper halves with random lower ones): mostly escapes, in order."""
    if form.itemsize <= 2:
        bits = np.arange(1 << 8 * form.itemsize, dtype=form.bits_dtype)
    else:
        low = np.random.default_rng(0).integers(0, 1 << 16, 1 << 16, np.uint32)
        bits = np.arange(1 << 16, dtype=np.uint32) << 16 | low
    for codebook in books(form, code_bits):
        for chunk_log2 in (10, 13):
            frames = [
                roundtrip(bits, form, Codec(codebook, min_gain=-np.inf, backend=name, chunk_log2=chunk_log2))
                for name in (("numpy", "numba") if has_numba() else ("numpy",))
            ]
            assert len(set(frames)) == 1
            assert inspect(frames[0]).frames[0].mode_name == "dict"


@pytest.mark.parametrize("form", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("n", [0, 1, 7, 63, 64, 65, 127, 1023, 1024, 1025, 8191, 8192, 8193, 20_000])
def test_tails_are_equal_on_both_backends(form, n):
    bits = np.random.default_rng(n).integers(0, 256, n * form.itemsize, np.uint8).view(form.bits_dtype)
    for code_bits in (3, 4):
        codebook = next(iter(books(form, code_bits)))
        frames = {
            roundtrip(bits, form, Codec(codebook, min_gain=-np.inf, backend=name))
            for name in (("numpy", "numba") if has_numba() else ("numpy",))
        }
        assert len(frames) == 1


@pytest.mark.parametrize("name", ["alice256", "constitution96", "minilm", "stories"])
def test_dumps_are_equal_on_both_backends(dump, name):
    cache = dump(name)
    for code_bits in (3, 4):
        codebook = Codebook.from_samples([cache], "bf16", code_bits=code_bits)
        frames = {
            roundtrip(cache, "bf16", Codec(codebook, backend=backend))
            for backend in (("numpy", "numba") if has_numba() else ("numpy",))
        }
        assert len(frames) == 1


def test_all_escape_goes_raw_by_default_and_survives_when_forced(backend):
    x = np.zeros(100_000, np.uint16)  # exponent 0 is not in the window
    assert Codec(WINDOW, backend=backend).encode(x, dtype="bf16").mode == "raw"
    frame = Codec(WINDOW, backend=backend, min_gain=-np.inf).encode(x, dtype="bf16")
    assert frame.n_escapes == x.size
    assert np.array_equal(decompress(frame, backend=backend).view(np.uint16), x)


def test_0d_and_empty(backend):
    for shape in ((), (0,), (3, 0, 2)):
        x = np.full(shape, 1.5, ml_dtypes.bfloat16)
        restored = decompress(compress(x, backend=backend), backend=backend)
        assert restored.shape == shape
        assert restored.dtype == ml_dtypes.bfloat16
        assert np.array_equal(restored.view(np.uint16), x.view(np.uint16))


@st.composite
def float_arrays(draw):
    form = draw(st.sampled_from(FLOATS))
    shape = draw(st.lists(st.integers(0, 40), max_size=4))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if draw(st.booleans()):
        bits = generator.integers(0, 256, size * form.itemsize, np.uint8).view(form.bits_dtype)
    else:
        bits = generator.normal(size=size).astype(form.dtype).view(form.bits_dtype)
    return form, bits.reshape(shape)


@settings(max_examples=150, deadline=None)
@given(
    array=float_arrays(),
    code_bits=st.sampled_from([3, 4]),
    chunk_log2=st.integers(10, 16),
    checksum=st.booleans(),
    forced=st.booleans(),
    data=st.data(),
)
def test_lossless_for_any_bits_shape_codebook_and_chunk(array, code_bits, chunk_log2, checksum, forced, data):
    form, bits = array
    values = data.draw(
        st.lists(st.integers(0, form.n_exponents - 1), min_size=2**code_bits, max_size=2**code_bits, unique=True)
    )
    frames = set()
    for backend in ("numpy", "numba") if has_numba() else ("numpy",):
        codec = Codec(
            Codebook(form, values, code_bits),
            chunk_log2=chunk_log2,
            checksum=checksum,
            backend=backend,
            min_gain=-np.inf if forced else 0.0,
        )
        frames.add(roundtrip(bits, form, codec))
        # The order in which a codebook's values are given does not matter.
        frames.add(Codec(Codebook(form, values[::-1], code_bits), chunk_log2=chunk_log2, checksum=checksum,
                         backend=backend, min_gain=codec.min_gain).encode(bits, dtype=form).tobytes())  # fmt: skip
    assert len(frames) == 1
    if not forced:
        assert len(frames.pop()) <= max_encoded_size(bits.shape, form)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 5000), frame_elems=st.integers(100, 3000), seed=st.integers(0, 1000))
def test_frames_decode_to_the_whole_in_any_order(n, frame_elems, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n).astype(np.float16)
    codec = Codec(Codebook.from_samples([x]))
    frames = [frame.tobytes() for frame in codec.encode_frames(x, frame_elems=frame_elems)]
    assert np.array_equal(decompress(b"".join(frames)).view(np.uint16), x.view(np.uint16))
    out = np.empty_like(x)
    for index in generator.permutation(len(frames)):
        assert codec.decode_frame(frames[index], out).frame_index == index
    assert np.array_equal(out.view(np.uint16), x.view(np.uint16))


def test_escape_order_is_strictly_ascending():
    x = np.random.default_rng(0).integers(0, 1 << 16, 50_000, np.uint16)
    frame = Codec(WINDOW, min_gain=-np.inf).encode(x, dtype="bf16")
    layout, payload = frame.info.sections, frame.buffer[frame.info.header_size :]
    starts = payload[layout.starts :][: 4 * (layout.n_chunks + 1)].view(np.uint32)
    positions = payload[layout.positions :][: 2 * frame.n_escapes].view(np.uint16)
    exponents = payload[layout.exponents(frame.n_escapes) :][: frame.n_escapes]
    index = np.repeat(np.arange(layout.n_chunks), np.diff(starts)) * 8192 + positions
    own = (x >> 7) & 0xFF
    escaped = np.flatnonzero((own < 113) | (own > 128))
    assert np.array_equal(index, escaped)
    assert np.array_equal(exponents, own[escaped])


@numba_needed
def test_threads_change_nothing():
    x = np.random.default_rng(0).normal(size=1 << 21).astype(np.float32).view(np.uint32) >> 16
    x = x.astype(np.uint16)
    codebook = Codebook.from_samples([x], "bf16", code_bits=3)  # 5 % escapes
    frames = [Codec(codebook, threads=threads).encode(x, dtype="bf16").tobytes() for threads in (1, 2, 3, 5)]
    assert len(set(frames)) == 1
    for threads in (1, 2, 5):
        assert np.array_equal(decompress(frames[0], threads=threads).view(np.uint16), x)


@numba_needed
@pytest.mark.parametrize("offset", [0, 2, 16, 30])
def test_streaming_stores_and_misaligned_arrays(offset):
    """From 16 MiB on the kernels store past the caches, if the addresses allow; the bytes must not differ."""
    n = (1 << 23) + 1000
    space = np.random.default_rng(0).integers(0, 256, 2 * n + 64, np.uint8)
    base = -space.ctypes.data % 64 + offset
    x = space[base : base + 2 * n].view(np.uint16)
    x[::3] = 0x3F80
    expected = Codec(WINDOW, backend="numpy", min_gain=-np.inf).encode(x, dtype="bf16")
    codec = Codec(WINDOW, backend="numba", min_gain=-np.inf)
    room = np.zeros(codec.max_encoded_size(x, "bf16") + 128, np.uint8)
    target = room[-room.ctypes.data % 64 + offset :]
    size = codec.encode_into(x, target, dtype="bf16")
    assert bytes(target[:size]) == expected.tobytes()
    out = np.zeros_like(space)[base : base + 2 * n].view(np.uint16)
    codec.decode(target[:size], out=out)
    assert np.array_equal(out, x)


def test_one_codec_from_many_threads(backend):
    generator = np.random.default_rng(0)
    codec = Codec(WINDOW, backend=backend, threads=2)
    arrays = [generator.integers(0x3000, 0x4000, 300_000 + k, np.uint16) for k in range(6)]
    expected = [Codec(WINDOW, backend="numpy").encode(x, dtype="bf16").tobytes() for x in arrays]
    failures = []

    def work(k):
        for _ in range(3):
            frame = codec.encode(arrays[k], dtype="bf16")
            if frame.tobytes() != expected[k] or not np.array_equal(codec.decode(frame).view(np.uint16), arrays[k]):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_encode_into(backend):
    codec = Codec(GOLDEN_BOOK, backend=backend)
    x = np.full(10_000, 0x3F80, np.uint16)
    bound = codec.max_encoded_size(x, "bf16")
    assert bound == max_encoded_size(10_000, "bf16")
    out = np.full(bound + 5, 0xAB, np.uint8)
    size = codec.encode_into(x, out, dtype="bf16")
    assert bytes(out[:size]) == codec.encode(x, dtype="bf16").tobytes()
    assert (out[bound:] == 0xAB).all()
    small = np.full(bound - 1, 0xAB, np.uint8)
    with pytest.raises(BufferTooSmall):
        codec.encode_into(x, small, dtype="bf16")
    assert (small == 0xAB).all(), "nothing may be written before the buffer is found too small"
    assert codec.encode_into(x, small, dtype="bf16", budget=True) == size
    exact = np.zeros(size, np.uint8)
    assert codec.encode_into(x, exact, dtype="bf16", budget=True) == size
    assert bytes(exact) == bytes(out[:size])
    with pytest.raises(BufferTooSmall):
        codec.encode_into(x, exact[:-1], dtype="bf16", budget=True)
    with pytest.raises(BufferTooSmall, match="read-only"):
        codec.encode_into(x, bytes(bound), dtype="bf16")


def test_budget_with_escapes_that_do_not_fit(backend):
    x = np.full(10_000, 0x3F80, np.uint16)
    x[::50] = 0
    codec = Codec(GOLDEN_BOOK, backend=backend)
    frame = codec.encode(x, dtype="bf16")
    assert frame.n_escapes == 200
    for room in (frame.nbytes - 1, frame.nbytes - 300, 100):
        with pytest.raises(BufferTooSmall):
            codec.encode_into(x, bytearray(room), dtype="bf16", budget=True)
    assert codec.encode_into(x, bytearray(frame.nbytes), dtype="bf16", budget=True) == frame.nbytes


def test_min_gain_is_a_fraction_of_raw(backend):
    x = np.full(100_000, 0x3F80, np.uint16)  # saves just under a quarter
    assert Codec(GOLDEN_BOOK, backend=backend, min_gain=0.2).encode(x, dtype="bf16").mode == "dict"
    assert Codec(GOLDEN_BOOK, backend=backend, min_gain=0.25).encode(x, dtype="bf16").mode == "raw"


def test_raw_break_even_is_near_one_sixth(backend):
    """4-bit BF16: 4 bits saved an element, 24 spent an escape."""
    n = 240_000
    for share, mode in ((0.160, "dict"), (0.170, "raw")):
        x = np.full(n, 0x3F80, np.uint16)
        x[: int(share * n)] = 0
        assert Codec(GOLDEN_BOOK, backend=backend).encode(x, dtype="bf16").mode == mode


def test_input_is_never_modified_and_may_be_strided(backend):
    x = np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)
    before = x.copy()
    for view in (x, x[::2], x.T, x[::-1, 1:]):
        assert np.array_equal(decompress(compress(view, backend=backend)), view)
    assert np.array_equal(x, before)


def test_out(backend):
    x = np.random.default_rng(0).normal(size=(10, 7)).astype(np.float32)
    frame = compress(x)
    out = np.empty_like(x)
    assert decompress(frame, out=out, backend=backend) is out
    assert np.array_equal(out, x)
    bits = np.empty(x.shape, np.uint32)
    decompress(frame, out=bits)
    assert np.array_equal(bits, x.view(np.uint32))
    with pytest.raises(LayoutMismatch, match="shape"):
        decompress(frame, out=np.empty((7, 10), np.float32))
    with pytest.raises(LayoutMismatch, match="dtype"):
        decompress(frame, out=np.empty((10, 7), np.float64))
    with pytest.raises(SplitZipError, match="contiguous"):
        decompress(frame, out=np.empty((7, 10), np.float32).T)
    frozen = np.empty_like(x)
    frozen.flags.writeable = False
    with pytest.raises(SplitZipError, match="writable"):
        decompress(frame, out=frozen)


def test_decoding_from_any_address(backend):
    space = bytearray(300)
    for offset in (0, 1, 2, 3, 8):
        space[offset : offset + len(GOLDEN)] = GOLDEN
        frame = memoryview(space)[offset : offset + len(GOLDEN)]
        assert np.array_equal(decompress(frame, backend=backend).view(np.uint16), GOLDEN_BITS)


def test_opaque_bytes():
    data = bytes(range(256)) * 3
    frame = compress(data, dtype="opaque")
    assert len(frame) == 128 + len(data)
    assert decompress(frame).tobytes() == data


def test_a_codec_without_codebook_frames_raw():
    frame = Codec(None).encode(GOLDEN_BITS, dtype="bf16")
    assert frame.mode == "raw"
    assert np.array_equal(decompress(frame).view(np.uint16), GOLDEN_BITS)


def test_bank_picks_by_key():
    bank = CodebookBank({(0, "k"): WINDOW, "default": GOLDEN_BOOK})
    codec = Codec(bank)
    x = np.full(4096, 0x3F80, np.uint16)
    assert codec.encode(x, (0, "k"), dtype="bf16").info.codebook == WINDOW
    assert codec.encode(x, "0/k", dtype="bf16").info.codebook == WINDOW
    assert codec.encode(x, (1, "v"), dtype="bf16").info.codebook == GOLDEN_BOOK
    assert codec.encode(x, dtype="bf16").info.codebook == GOLDEN_BOOK


def test_monitor_notices_drift_also_in_raw_frames(backend):
    monitor = EscapeMonitor(recalibrate_at=0.02, decay=0.5)
    codec = Codec(GOLDEN_BOOK, monitor=monitor, backend=backend)
    good = np.full(10_000, 0x3F80, np.uint16)
    for _ in range(3):
        codec.encode(good, "a", dtype="bf16")
    assert monitor.rate("a") == 0.0
    assert monitor.due() == []
    drifted = np.full(10_000, 0x2000, np.uint16)  # exponent 64: all escape, so the frame goes RAW
    assert codec.encode(drifted, "a", dtype="bf16").mode == "raw"
    assert monitor.due() == ["a"]
    renewed = monitor.recalibrated(drifted, GOLDEN_BOOK, "a")
    assert 64 in renewed.values
    assert monitor.due() == []
    assert monitor.rate("a") is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Codec("auto"),
        lambda: Codec(WINDOW, chunk_log2=9),
        lambda: Codec(WINDOW, min_gain=1.0),
        lambda: Codec(WINDOW, threads=0),
        lambda: Codec(WINDOW, backend="fortran"),
        lambda: compress(np.zeros(3, np.float32), frame_elems=0),
        lambda: compress(np.zeros(3, np.float32), tag=-1),
        lambda: compress(np.zeros(3, np.float32), tag=2**64),
        lambda: compress(np.zeros((1,) * 9, np.float32)),
        lambda: Codec(WINDOW).encode(np.zeros(3, np.float32)),
        lambda: decompress(GOLDEN, like="tensorflow"),
        lambda: decompress("text"),
        lambda: decompress(memoryview(GOLDEN)[::2]),
    ],
)
def test_bad_arguments(make):
    with pytest.raises(SplitZipError):
        make()


def test_frame_limit():
    with pytest.raises(LimitError):
        compress(np.zeros(3, np.float32), frame_elems=2**31)
    huge = np.empty(2**31, np.uint8)  # never touched, so never really allocated
    with pytest.raises(LimitError, match="encode_frames"):
        Codec(None).encode(huge, dtype="e5m2")


def test_reference_frames_of_all_patterns(backend):
    """Sizes and hashes from the specification of the format."""
    x = np.arange(65536, dtype=np.uint16)
    assert Codec(WINDOW, backend=backend).encode(x, dtype="bf16").nbytes == 131_200
    forced = Codec(WINDOW, backend=backend, min_gain=-np.inf).encode(x, dtype="bf16")
    assert forced.nbytes == 282_800
    assert xxhash.xxh3_64_intdigest(forced.buffer) == 0xD11C61553BFE9030


@numba_needed
@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["generic", pytest.param("haswell", marks=pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="an x86 processor"))])  # fmt: skip
def test_the_code_for_other_processors(cpu, request):
    """LLVM lowers the vectors to whatever there is; have it lower them for processors with less."""
    chosen = "every_pattern or tails or streaming or threads_change"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(request.config.inipath), "-q", "-k", chosen, __file__],
        env={**os.environ, "NUMBA_CPU_NAME": cpu},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
