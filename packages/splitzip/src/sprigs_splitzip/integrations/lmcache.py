"""LMCache: the serde "splitzip", lossless, verified; a damaged entry is a cache miss.

Written against LMCache 0.5.6, `lmcache.v1.distributed.serde`: `Serializer.serialize(src, dst, key) -> int`,
`Serializer.estimate_serialized_size(layout_desc) -> int`, `Deserializer.deserialize(src, dst, key) -> None`,
`AsyncSerdeProcessor(serializer, deserializer, max_workers=)`, `register_serde_factory(name, factory)`; of a memory
object `get_shapes()`, `get_tensor(index)` and `byte_array`. A task that raises is LMCache's cache miss, which is what
damage should be. Tested against stand-ins with these signatures: LMCache itself imports only where it finds a GPU.

    from sprigs_splitzip.integrations import lmcache
    lmcache.register()                       # then, in the adapter's JSON: "serde": {"type": "splitzip"}
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bank import CodebookBank
from ..codec import Codec, compress, decompress, inspect
from ..errors import BufferTooSmall, DeviceUnavailable, LayoutMismatch
from ..format import max_encoded_size

NAME = "splitzip"


def estimate(layout_desc: Any) -> int:
    """Return the most bytes that groups of `layout_desc.shapes` and `.dtypes` can take: an exact upper bound."""
    groups = zip(layout_desc.shapes, layout_desc.dtypes, strict=True)
    return sum(max_encoded_size(tuple(int(d) for d in shape), dtype) for shape, dtype in groups)


def serialize(src: Any, dst: Any, bank: CodebookBank | None = None) -> int:
    """Write the tensors of the memory object `src` into `dst`, one stream after another; return the bytes written.

    Raises:
        BufferTooSmall: `dst` is smaller than what `estimate` gave.
        SplitZipError: A tensor cannot be encoded.
    """
    target = np.frombuffer(_bytes_of(dst), np.uint8)
    written = 0
    for tensor in _groups(src):
        data = np.frombuffer(compress(tensor), np.uint8) if bank is None else Codec(bank).encode(tensor).buffer
        if written + data.size > target.size:
            raise BufferTooSmall(f"{written + data.size} bytes are needed, the buffer has {target.size}")
        target[written : written + data.size] = data
        written += data.size
    return written


def deserialize(src: Any, dst: Any) -> None:
    """Read the streams in `src`, which may be longer than them, into the tensors of `dst`.

    Raises:
        SplitZipError: The bytes are damaged, or hold tensors of another dtype or shape.
    """
    data = memoryview(_bytes_of(src)).cast("B")
    for tensor in _groups(dst):
        if not data:
            raise LayoutMismatch("the bytes hold fewer tensors than the memory object")
        decompress(data, out=tensor, allow_trailing=True)
        data = data[inspect(data).nbytes :]


def register(name: str = NAME) -> bool:
    """Make the serde known to LMCache; return False if it was already.

    Raises:
        DeviceUnavailable: LMCache is not installed.
    """
    try:
        from lmcache.v1.distributed import serde
    except ModuleNotFoundError as error:
        raise DeviceUnavailable("LMCache is not installed: pip install lmcache") from error
    try:
        serde.register_serde_factory(name, factory)
    except ValueError:
        return False
    return True


def factory(options: dict[str, Any]) -> Any:
    """Make LMCache's serde processor.

    Args:
        options: `bank` (path of a codebook bank, optional), `max_workers`.
    """
    from lmcache.v1.distributed import serde

    path = options.get("bank")
    bank = None if path is None else CodebookBank.load(path)

    class SplitZipSerializer(serde.Serializer):  # type: ignore[misc]
        def serialize(self, src: Any, dst: Any, key: Any) -> int:
            return serialize(src, dst, bank)

        def estimate_serialized_size(self, layout_desc: Any) -> int:
            return estimate(layout_desc)

    class SplitZipDeserializer(serde.Deserializer):  # type: ignore[misc]
        def deserialize(self, src: Any, dst: Any, key: Any) -> None:
            deserialize(src, dst)

    workers = int(options.get("max_workers", 1))
    return serde.AsyncSerdeProcessor(SplitZipSerializer(), SplitZipDeserializer(), max_workers=workers)


def _groups(memory: Any) -> list[Any]:
    """Return the tensors of a memory object, one for each group of its layout."""
    return [memory.get_tensor(index) for index in range(len(memory.get_shapes()))]


def _bytes_of(memory: Any) -> memoryview:
    # `byte_array` follows the size that was set; `tensor` would be the whole allocation.
    return memoryview(memory.byte_array).cast("B")
