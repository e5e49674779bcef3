"""Pages encoded and decoded in place, against gathering them first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_splitzip import (
    ChecksumError,
    Codebook,
    Codec,
    FormatError,
    LayoutMismatch,
    LimitError,
    SplitZipError,
    decode_pages,
    decompress,
    encode_pages,
    layout_fingerprint,
)
from sprigs_splitzip.backends import has_numba
from sprigs_splitzip.floats import BF16
from sprigs_splitzip.paged import _pieces
from sprigs_splitzip.samples import shipped_cache

BOOK = Codebook("bf16", range(113, 129))


def a_cache(shape, seed=0):
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32).view(np.uint32) >> 16
    return x.astype(np.uint16)


@settings(max_examples=80, deadline=None)
@given(
    pages=st.integers(1, 9),
    inside=st.sampled_from([(16, 8), (2, 16, 8), (4, 3, 64), (5, 7), (2, 64, 2), (130,)]),
    page_dim=st.integers(0, 2),
    count=st.integers(1, 12),
    code_bits=st.sampled_from([3, 4]),
    backend=st.sampled_from(["numpy", "auto"]),
    seed=st.integers(0, 99),
)
def test_the_same_frame_as_of_gathered_pages(pages, inside, page_dim, count, code_bits, backend, seed):
    page_dim = min(page_dim, len(inside))
    shape = (*inside[:page_dim], pages, *inside[page_dim:])
    cache = a_cache(shape, seed)
    ids = np.random.default_rng(seed).integers(0, pages, count)
    codec = Codec(Codebook.from_samples([cache], "bf16", code_bits=code_bits), backend=backend, chunk_log2=10)
    frame = encode_pages(cache, ids, codec, page_dim=page_dim, dtype="bf16")
    gathered = np.ascontiguousarray(np.moveaxis(cache, page_dim, 0)[ids])
    tag = layout_fingerprint("bf16", inside, page_dim)
    assert frame.tobytes() == codec.encode(gathered, dtype="bf16", tag=tag).tobytes()
    assert np.array_equal(decompress(frame).view(np.uint16), gathered)


@pytest.mark.parametrize("page_dim", [0, 1, 2])
@pytest.mark.parametrize("inside", [(2, 16, 8, 64), (3, 5, 7)])
def test_decoding_scatters_and_touches_no_other_page(page_dim, inside):
    shape = (*inside[:page_dim], 12, *inside[page_dim:])
    cache = a_cache(shape)
    codec = Codec(BOOK)
    frame = encode_pages(cache, [3, 0, 7], codec, page_dim=page_dim, dtype="bf16")
    target = np.full(shape, 0xABCD, np.uint16)
    decode_pages(frame, target, [11, 2, 5], page_dim=page_dim, dtype="bf16", threads=2)
    got, want = np.moveaxis(target, page_dim, 0), np.moveaxis(cache, page_dim, 0)
    for to, of in ((11, 3), (2, 0), (5, 7)):
        assert np.array_equal(got[to], want[of])
    others = [i for i in range(12) if i not in (11, 2, 5)]
    assert (got[others] == 0xABCD).all()


@pytest.mark.skipif(not has_numba(), reason="numba is not installed")
def test_pages_are_viewed_not_gathered():
    cache = a_cache((2, 40, 16, 8, 64))
    pieces = _pieces(cache, 1, [5, 6], BF16)
    assert len(pieces.parts) == 4
    assert all(np.shares_memory(part, cache) for part in pieces.parts)
    assert pieces.piece_elems == 16 * 8 * 64
    assert _pieces(a_cache((4, 5, 7)), 0, [1], BF16) is None
    strided = a_cache((6, 4, 128))[:, ::2]
    assert len(_pieces(strided, 0, [1, 2], BF16).parts) == 4
    assert _pieces(a_cache((6, 128))[:, ::2], 0, [1], BF16) is None


def test_a_real_cache_in_pages_of_sixteen_tokens():
    """Layer 0 of the cache in the package, K and V, as an engine would hold it: (2, blocks, 16, heads, width)."""
    layer = shipped_cache()[0]
    paged = layer.reshape(2, 4, 16, 3, 64)
    frame = encode_pages(paged, [3, 1], Codec(BOOK), page_dim=1, dtype="bf16")
    assert frame.ratio > 1.28
    target = np.zeros_like(paged)
    decode_pages(frame, target, [3, 1], page_dim=1, dtype="bf16")
    assert np.array_equal(target[:, [1, 3]], paged[:, [1, 3]])
    assert not target[:, [0, 2]].any()


def test_torch():
    torch = pytest.importorskip("torch")
    cache = torch.randn(10, 16, 2, 64, dtype=torch.bfloat16)
    codec = Codec(BOOK)
    frame = encode_pages(cache, [1, 9], codec)
    target = torch.zeros_like(cache)
    decode_pages(frame, target, [0, 4])
    assert torch.equal(target[0], cache[1])
    assert torch.equal(target[4], cache[9])
    # A view with the pages second, as some engines keep it.
    frame = encode_pages(cache.transpose(0, 1), [1, 9], codec, page_dim=1)
    assert np.array_equal(decompress(frame).view(np.uint16), cache[[1, 9]].view(torch.int16).numpy().view(np.uint16))


def test_raw_pages():
    cache = np.zeros((4, 16, 64), np.uint16)  # all escape
    cache[2] = 7
    frame = encode_pages(cache, [2, 0], Codec(BOOK), dtype="bf16")
    assert frame.mode == "raw"
    target = np.ones_like(cache)
    decode_pages(frame, target, [1, 3], dtype="bf16")
    assert (target[1] == 7).all()
    assert (target[3] == 0).all()


def test_refusals():
    cache = a_cache((6, 16, 64))
    codec = Codec(BOOK)
    frame = encode_pages(cache, [1, 2], codec, dtype="bf16")
    for act, error in [
        (lambda: encode_pages(cache, [6], codec, dtype="bf16"), SplitZipError),
        (lambda: encode_pages(cache, [-1], codec, dtype="bf16"), SplitZipError),
        (lambda: encode_pages(cache, [0], codec, page_dim=3, dtype="bf16"), SplitZipError),
        (lambda: encode_pages(cache, [0] * 2**21, codec, dtype="bf16"), LimitError),
        (lambda: decode_pages(frame, cache, [1, 1], dtype="bf16"), SplitZipError),
        (lambda: decode_pages(frame, cache, [1], dtype="bf16"), LayoutMismatch),
        (lambda: decode_pages(frame, a_cache((6, 64, 16)), [1, 2], dtype="bf16"), LayoutMismatch),
        (lambda: decode_pages(frame, a_cache((6, 16, 64)), [1, 2], dtype="fp16"), LayoutMismatch),
        (lambda: decode_pages(frame, cache, [1, 2], dtype="bf16", expected_tag=5), LayoutMismatch),
        (lambda: decode_pages(frame.tobytes() + b"x", cache, [1, 2], dtype="bf16"), FormatError),
    ]:
        with pytest.raises(error):
            act()
    damaged = bytearray(frame.tobytes())
    damaged[900] ^= 1
    before = cache.copy()
    with pytest.raises(ChecksumError):
        decode_pages(damaged, cache, [1, 2], dtype="bf16")
    assert np.array_equal(cache, before), "a checksum is compared before anything is written"
    cache.flags.writeable = False
    with pytest.raises(SplitZipError, match="read-only"):
        decode_pages(frame, cache, [1, 2], dtype="bf16")


def test_fingerprints_tell_layouts_apart():
    seen = {
        layout_fingerprint(dtype, shape, dim, n, model)
        for dtype in ("bf16", "fp16")
        for shape in ((16, 8), (8, 16))
        for dim in (0, 1)
        for n in (0, 4)
        for model in ("", "a")
    }
    assert len(seen) == 32
    assert layout_fingerprint("bfloat16", [16, 8]) == layout_fingerprint("bf16", (16, 8))
