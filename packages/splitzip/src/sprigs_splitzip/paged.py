"""Pages of a paged KV cache: encoded where they lie into one frame, and decoded to where they belong.

A page is `cache[block_id]`, or `cache[:, block_id]` and so on with `page_dim`. What is inside a page (K and V, heads,
layers) is never interpreted: engines change that, and guessing it corrupts silently. The tag says which layout the
pages have, and decoding refuses another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from . import arrays
from .arrays import Pieces, is_on_device
from .backends import has_numba
from .bank import Key
from .codec import MAX_BYTES, Codec, Encoded, Part, decode_payload
from .errors import ChecksumError, DeviceUnavailable, FormatError, LayoutMismatch, SplitZipError
from .floats import FloatFormat, float_format
from .format import DICT, check_shape, parse_header

_LANES = 64


def layout_fingerprint(
    dtype: object, page_shape: Sequence[int], page_dim: int = 0, n_pages: int = 0, model_id: str = ""
) -> int:
    """Return a 64-bit tag (XXH3) of a layout: both sides compute it, and frames of another are refused.

    Args:
        dtype: Element format.
        page_shape: Shape of a page.
        page_dim: Which dimension of the cache counts pages.
        n_pages: Pages of the cache, if that is to agree too.
        model_id: Whatever else must agree: model, layer, revision of the engine's layout.
    """
    text = repr((float_format(dtype).name, tuple(map(int, page_shape)), int(page_dim), int(n_pages), str(model_id)))
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def encode_pages(
    cache: object,
    block_ids: Sequence[int],
    codec: Codec,
    key: Key | None = None,
    *,
    page_dim: int = 0,
    dtype: object = None,
    tag: int | None = None,
) -> Encoded:
    """Encode pages into one frame, in the order of `block_ids`, without gathering them first.

    Pages whose contiguous runs are no multiple of 64 elements are gathered after all, and so they are without numba.

    Args:
        cache: The paged tensor; NumPy, torch (CPU) or JAX (CPU), with any strides.
        block_ids: Which pages; a page may come twice.
        codec, key: How to encode.
        page_dim: Which dimension of `cache` counts pages.
        dtype: Element format, for raw bit patterns.
        tag: None: `layout_fingerprint` of dtype, page shape and page_dim.

    Returns:
        A frame of shape (pages, *page shape).

    Raises:
        SplitZipError: A block id or `page_dim` that there is not; see `Codec.encode`.
    """
    array, form, page_dim, ids = _checked(cache, dtype, block_ids, page_dim)
    page_shape = _page_shape(array, page_dim)
    shape = (len(ids), *page_shape)
    tag = layout_fingerprint(form, page_shape, page_dim) if tag is None else tag
    check_shape(shape, tag)
    bits: Any = _pieces(array, page_dim, ids, form)
    if bits is None:
        bits = np.ascontiguousarray(np.moveaxis(array, page_dim, 0)[ids]).reshape(-1).view(form.bits_dtype)
    return codec.encode_part(Part(bits, form, shape, 0, 0), key, tag=tag)


def decode_pages(
    buf: Any,
    cache: object,
    block_ids: Sequence[int],
    *,
    page_dim: int = 0,
    dtype: object = None,
    expected_tag: int | None = None,
    verify: bool = True,
    threads: int = 1,
) -> None:
    """Decode a frame of pages to where they belong in `cache`.

    Args:
        buf: What `encode_pages` made.
        cache: The paged tensor, writable; NumPy or torch (CPU).
        block_ids: Where each page of the frame goes; each at most once.
        page_dim: Which dimension of `cache` counts pages.
        dtype: Element format, for raw bit patterns.
        expected_tag: None: `layout_fingerprint` of dtype, page shape and page_dim of `cache`.
        verify: Compare the payload's checksum.
        threads: Most threads to use.

    Raises:
        LayoutMismatch: The frame's tag, dtype, page shape or number of pages is another.
        SplitZipError: The frame is damaged. The pages named are then undefined, the others untouched.
    """
    array, form, page_dim, ids = _checked(cache, dtype, block_ids, page_dim)
    if len(set(ids)) < len(ids):
        raise SplitZipError("a page to decode into is named twice")
    if not array.flags.writeable:
        raise SplitZipError("the cache is read-only")
    page_shape = _page_shape(array, page_dim)
    data = arrays.buffer_of(buf.buffer if isinstance(buf, Encoded) else buf)
    info = parse_header(data.data, MAX_BYTES)
    if data.size != info.nbytes or not info.last or info.elem_offset or info.frame_index:
        raise FormatError("expected exactly one frame that holds all its pages")
    tag = layout_fingerprint(form, page_shape, page_dim) if expected_tag is None else expected_tag
    if info.tag != tag:
        raise LayoutMismatch(f"the pages bear the tag {info.tag:#x}, expected {tag:#x}: another layout or model")
    if info.format != form or info.shape != (len(ids), *page_shape):
        raise LayoutMismatch(
            f"the frame holds {info.format.name} pages {info.shape}, expected {form.name} {(len(ids), *page_shape)}"
        )
    payload = data[info.header_size :]
    pieces = _pieces(array, page_dim, ids, form)
    if pieces is None or info.mode != DICT:
        flat = np.empty(info.n_elems, form.bits_dtype)
        decode_payload(info, payload, flat, verify, threads)
        np.moveaxis(array, page_dim, 0)[ids] = flat.view(array.dtype).reshape(info.shape)
        return
    from . import fast

    if verify and info.checksum is not None and xxhash.xxh3_64_intdigest(payload.data) != info.checksum:
        raise ChecksumError("the payload checksum does not match: the pages are damaged")
    assert info.codebook is not None
    fast.check_escapes(payload, form, info.sections, info.chunk_log2, info.n_elems, info.n_escapes)
    fast.decode_pieces(payload, info.codebook, info.sections, info.chunk_log2, info.n_escapes, pieces, threads)


def _checked(
    cache: object, dtype: object, block_ids: Sequence[int], page_dim: int
) -> tuple[npt.NDArray[Any], FloatFormat, int, list[int]]:
    if is_on_device(cache):
        raise DeviceUnavailable("pages on a CUDA device are not supported yet; gather them and use Codec.encode")
    array, form = arrays.strided_bits(cache, dtype)
    if not -array.ndim <= page_dim < array.ndim:
        raise SplitZipError(f"page_dim={page_dim} is none of the {array.ndim} dimensions of the cache")
    page_dim %= array.ndim
    ids = [int(block) for block in block_ids]
    n_pages = array.shape[page_dim]
    if wrong := [block for block in ids if not 0 <= block < n_pages]:
        raise SplitZipError(f"block {wrong[0]} is none of the cache's {n_pages} pages")
    return array, form, page_dim, ids


def _page_shape(array: npt.NDArray[Any], page_dim: int) -> tuple[int, ...]:
    return tuple(int(d) for i, d in enumerate(array.shape) if i != page_dim)


def _pieces(array: npt.NDArray[Any], page_dim: int, ids: list[int], form: FloatFormat) -> Pieces | None:
    """View the pages as contiguous runs; None if there are none of a whole number of groups."""
    if not ids or not array.size or not has_numba():
        return None
    pages = np.moveaxis(array, page_dim, 0)
    inner = pages.ndim
    run = 1
    while inner > 1 and pages.strides[inner - 1] == run * array.itemsize:
        inner -= 1
        run *= pages.shape[inner]
    if run % _LANES:
        return None
    parts = []
    for block in ids:
        page = pages[block]
        parts += [page[index].reshape(-1).view(form.bits_dtype) for index in np.ndindex(*page.shape[: inner - 1])]
    return Pieces(tuple(parts))
