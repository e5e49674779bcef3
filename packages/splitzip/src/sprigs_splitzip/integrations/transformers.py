"""KV caches of Hugging Face transformers: `DynamicCache` to bytes and back.

Written against transformers 5.24: a cache has `layers`, each with `keys` and `values` of shape (batch, heads, tokens,
width). The same attributes exist since 4.54.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ..bank import CodebookBank, Key
from ..codebook import Codebook
from ..codec import MAX_BYTES, Codec, decompress, inspect
from ..errors import FormatError, LimitError, SplitZipError, TruncatedError

_MAGIC = b"SPLZKV1\0"
_HEAD = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")


def iter_parts(cache: Any) -> Iterator[tuple[Key, Any]]:
    """Yield ((layer, "k" or "v"), tensor) of a transformers cache.

    Raises:
        SplitZipError: It has no layers of keys and values, or one that is still empty.
    """
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise SplitZipError(f"expected a cache with layers (transformers 4.54 or later); got {type(cache).__name__}")
    for number, layer in enumerate(layers):
        for part, name in (("k", "keys"), ("v", "values")):
            tensor = getattr(layer, name, None)
            if tensor is None or not hasattr(tensor, "dtype"):
                raise SplitZipError(f"layer {number} of the cache has no {name}: run the model first")
            yield (number, part), tensor


def compress_cache(cache: Any, codebook: Codebook | CodebookBank | None = None, *, tag: int = 0) -> bytes:
    """Compress a cache of CPU tensors, bit-exactly.

    Args:
        cache: A `DynamicCache` or another with `layers`.
        codebook: A codebook or bank (keys (layer, "k") and (layer, "v")); None: one calibrated on the cache itself.
        tag: Unsigned 64-bit number stored in each frame.

    Raises:
        SplitZipError: The cache is empty, or its tensors are of no float format.
    """
    parts = list(iter_parts(cache))
    if not parts:
        raise SplitZipError("the cache has no layers")
    if codebook is None:
        codebook = CodebookBank.calibrate(parts)
    codec = Codec(codebook)
    frames = [codec.encode(tensor, key, tag=tag).tobytes() for key, tensor in parts]
    pieces = [_HEAD.pack(_MAGIC, len(frames) // 2)]
    for frame in frames:
        pieces += [_LENGTH.pack(len(frame)), frame]
    return b"".join(pieces)


def decompress_cache(
    buf: Any, cache: Any = None, *, expected_tag: int | None = None, max_bytes: int = MAX_BYTES
) -> Any:
    """Restore a cache.

    Args:
        buf: What `compress_cache` made.
        cache: An empty cache to fill by its `update`; None: a new `DynamicCache`.
        expected_tag: Refuse another.
        max_bytes: Refuse tensors that would take more, all together.

    Raises:
        SplitZipError: The bytes are damaged; nothing is put into `cache` then.
    """
    data = memoryview(buf).cast("B")
    if len(data) < _HEAD.size:
        raise TruncatedError("the bytes end before the cache does")
    magic, n_layers = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError("these bytes are no compressed transformers cache")
    position = _HEAD.size
    frames = []
    total = 0
    for _ in range(2 * n_layers):
        if len(data) < position + _LENGTH.size:
            raise TruncatedError("the bytes end before the cache does")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length > len(data) - position:
            raise TruncatedError("the bytes end before the cache does")
        frame = data[position : position + length]
        total += inspect(frame, max_bytes=max_bytes).raw_nbytes
        if total > max_bytes:
            raise LimitError(f"the cache decodes to more than max_bytes={max_bytes}")
        frames.append(frame)
        position += length
    if position != len(data):
        raise FormatError(f"{len(data) - position} bytes follow the cache")
    tensors = [decompress(frame, like="torch", expected_tag=expected_tag, max_bytes=max_bytes) for frame in frames]
    if cache is None:
        from transformers import DynamicCache

        cache = DynamicCache()
    for layer in range(n_layers):
        cache.update(tensors[2 * layer], tensors[2 * layer + 1], layer)
    return cache
