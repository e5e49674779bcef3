"""Pages of a paged KV cache: encoded where they lie into one frame, and decoded to where they belong.

A page is `cache[block_id]`, or `cache[:, block_id]` and so on with `page_dim`. What is inside a page (K and V, heads,
layers) is never interpreted: engines change that, and guessing it corrupts silently. The tag says which layout the
pages have, and decoding refuses another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from . import arrays
from .arrays import Pieces, is_on_device
from .backends import has_numba
from .bank import Key
from .codec import MAX_BYTES, Codec, Encoded, Part, decode_payload
from .errors import DeviceUnavailable, FormatError, LayoutMismatch, LimitError, SplitZipError
from .floats import FloatFormat, float_format
from .format import DICT, MAX_FRAME_ELEMENTS, MAX_HEADER, check_shape, parse_header
from .memory import memory_of

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

    Pages whose contiguous runs are no multiple of 64 elements are gathered after all, and so they are without numba; on
    a CUDA device runs of a multiple of 8 elements and 16 bytes are encoded where they lie.

    Args:
        cache: The paged tensor; NumPy, torch (CPU or CUDA), JAX (CPU) or CuPy, with any strides.
        block_ids: Which pages; a page may come twice.
        codec, key: How to encode.
        page_dim: Which dimension of `cache` counts pages.
        dtype: Element format, for raw bit patterns.
        tag: None: `layout_fingerprint` of dtype, page shape and page_dim.

    Returns:
        A frame of shape (pages, *page shape), on the device if the cache is there.

    Raises:
        SplitZipError: A block id or `page_dim` that there is not; see `Codec.encode`.
    """
    memory = memory_of(cache)
    with memory.current_stream(cache):
        array, form, page_dim, ids = _checked(cache, dtype, block_ids, page_dim)
        page_shape = _page_shape(array, page_dim)
        shape = (len(ids), *page_shape)
        tag = layout_fingerprint(form, page_shape, page_dim) if tag is None else tag
        check_shape(shape, tag)
        if math.prod(shape) > MAX_FRAME_ELEMENTS:
            raise LimitError(f"{math.prod(shape)} elements do not fit one frame; encode fewer pages at a time")
        bits: Any = _pieces(array, page_dim, ids, form)
        if bits is None:
            bits = _gathered(array, page_dim, ids, form)
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
        buf: What `encode_pages` made, on the host or the device.
        cache: The paged tensor, writable; NumPy, torch (CPU or CUDA) or CuPy.
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
    memory, plain = memory_of(cache), buf.buffer if isinstance(buf, Encoded) else buf
    source = memory_of(plain)
    if memory is arrays and source is not arrays:
        raise DeviceUnavailable("the frame is on a CUDA device and the cache is not; tobytes() copies it to the host")
    with memory.current_stream(cache):
        array, form, page_dim, ids = _checked(cache, dtype, block_ids, page_dim)
        if len(set(ids)) < len(ids):
            raise SplitZipError("a page to decode into is named twice")
        if memory is arrays and not array.flags.writeable:
            raise SplitZipError("the cache is read-only")
        page_shape = _page_shape(array, page_dim)
        data = source.buffer_of(plain)
        info = parse_header(source.to_host(data[:MAX_HEADER]).data, MAX_BYTES)
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
            flat = memory.allocate(form, (info.n_elems,), "numpy" if memory is arrays else "cupy")[1]
            decode_payload(info, payload, flat, verify, threads)
            _pages_first(array, page_dim)[ids] = flat.view(array.dtype).reshape(info.shape)
        else:
            decode_payload(info, payload, pieces, verify, threads, "numba" if memory is arrays else "auto")


def _checked(
    cache: object, dtype: object, block_ids: Sequence[int], page_dim: int
) -> tuple[Any, FloatFormat, int, list[int]]:
    array, form = memory_of(cache).strided_bits(cache, dtype)
    if not -array.ndim <= page_dim < array.ndim:
        raise SplitZipError(f"page_dim={page_dim} is none of the {array.ndim} dimensions of the cache")
    page_dim %= array.ndim
    ids = [int(block) for block in block_ids]
    n_pages = array.shape[page_dim]
    if wrong := [block for block in ids if not 0 <= block < n_pages]:
        raise SplitZipError(f"block {wrong[0]} is none of the cache's {n_pages} pages")
    return array, form, page_dim, ids


def _page_shape(array: Any, page_dim: int) -> tuple[int, ...]:
    return tuple(int(d) for i, d in enumerate(array.shape) if i != page_dim)


def _pages_first(array: Any, page_dim: int) -> Any:
    return array.transpose(page_dim, *(i for i in range(array.ndim) if i != page_dim))


def _gathered(array: Any, page_dim: int, ids: list[int], form: FloatFormat) -> Any:
    return _pages_first(array, page_dim)[ids].reshape(-1).view(form.bits_dtype)


def _pieces(array: Any, page_dim: int, ids: list[int], form: FloatFormat) -> Any:
    """View the pages as contiguous runs, `Pieces` or `DevicePieces`; None if no kernel takes runs of such lengths."""
    if not ids or not array.size:
        return None
    pages = _pages_first(array, page_dim)
    inner = pages.ndim
    run = 1
    while inner > 1 and (pages.shape[inner - 1] == 1 or pages.strides[inner - 1] == run * array.itemsize):
        inner -= 1
        run *= pages.shape[inner]
    outer = pages.shape[1:inner]
    if is_on_device(array):
        from . import cuda

        offsets = np.array(ids, np.int64) * pages.strides[0]
        for d, stride in zip(outer, pages.strides[1:inner], strict=True):
            offsets = np.add.outer(offsets, np.arange(d) * stride).reshape(-1)
        return cuda.pieces(array, offsets.astype(np.uint64), run)
    if run % _LANES or not has_numba():
        return None
    return Pieces(
        tuple(pages[block][index].reshape(-1).view(form.bits_dtype) for block in ids for index in np.ndindex(*outer))
    )
