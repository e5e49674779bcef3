"""safetensors files: compressed and back, tensor by tensor, bit-exactly.

A compressed file is itself a safetensors file: each tensor of a float format that shrinks stands in it as a U8 tensor
that holds its frames, and the metadata say which (`splitzip`, `splitzip_tensors`). All else stays as it was, so any
reader can open it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import arrays
from .arrays import Like
from .backends import thread_count
from .bank import CodebookBank
from .codebook import CodeBits
from .codec import FRAME_ELEMENTS, Codec, compress, decompress, inspect
from .errors import DeviceUnavailable, FormatError, SplitZipError
from .floats import FORMATS, FloatFormat

VERSION = "1"

# safetensors' names of our formats, and of the other types it stores.
_FORMATS = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F8_E5M2": "e5m2", "F8_E4M3": "e4m3fn"}
_OTHERS = {
    "F64": "float64", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "C64": "complex64",
}  # fmt: skip
_BY_NAME = {f.name: f for f in FORMATS}
_SIZES = {key: _BY_NAME[name].itemsize for key, name in _FORMATS.items()}
_SIZES |= {key: np.dtype(name).itemsize for key, name in _OTHERS.items()}

Progress = Callable[[int], None]
Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it lies in a safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def format(self) -> FloatFormat | None:
        """The format that splitzip knows it by, if any."""
        return _BY_NAME[_FORMATS[self.dtype]] if self.dtype in _FORMATS else None


@dataclass(frozen=True)
class FileInfo:
    """What a file holds, from headers alone.

    Attributes:
        raw_nbytes, nbytes: Bytes of all tensors, and of what the file holds of them.
        compressed: Names of the compressed tensors.
        tensors: Name to (dtype, shape, ratio).
    """

    raw_nbytes: int
    nbytes: int
    compressed: tuple[str, ...]
    tensors: dict[str, tuple[str, tuple[int, ...], float]]

    @property
    def ratio(self) -> float:
        """Raw bytes / stored bytes."""
        return self.raw_nbytes / self.nbytes if self.nbytes else 1.0


def save_file(
    tensors: Mapping[str, Any],
    path: Path_,
    *,
    bank: CodebookBank | None = None,
    code_bits: CodeBits = 4,
    metadata: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> None:
    """Write arrays (NumPy, torch, JAX) as a compressed safetensors file; it appears whole or not at all.

    Args:
        tensors: Name to array.
        path: Where to.
        bank: Codebooks by tensor name; None: one chosen for each tensor.
        code_bits: For codebooks chosen here.
        metadata: Further entries of the file's own metadata.
        threads: Most threads to use.

    Raises:
        SplitZipError: An array that safetensors cannot store.
    """
    stored = [_stored(name, x) for name, x in tensors.items()]
    _write_compressed(stored, Path(path), dict(metadata or {}), bank, code_bits, threads, _ignore)


def load_file(
    path: Path_, names: Iterable[str] | None = None, *, like: Like = "numpy", threads: int | None = None
) -> dict[str, Any]:
    """Read arrays from a safetensors file, compressed or not.

    Args:
        path: Where from.
        names: Which tensors; None: all.
        like: `"numpy"`, `"torch"` or `"jax"`.
        threads: Most threads to use.

    Raises:
        SplitZipError: It is no safetensors file, has no such tensor, or a tensor is damaged.
    """
    stored, metadata = _read(Path(path))
    wanted = list(stored) if names is None else list(names)
    if unknown := [name for name in wanted if name not in stored]:
        raise SplitZipError(f"{path} holds no tensor {', '.join(map(repr, unknown))}")
    streams = _streams(Path(path), stored, metadata)
    loaded = {}
    for name in wanted:
        tensor = stored[name]
        if name in streams:
            with _named(path, name):
                loaded[name] = decompress(tensor.data, like=like, threads=threads)
        else:
            loaded[name] = _as_array(tensor, like)
    return loaded


def save_streams(streams: Mapping[str, Any], path: Path_, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write streams that were encoded already as a compressed safetensors file; it appears whole or not at all.

    Args:
        streams: Tensor name to the stream's bytes: bytes-like, or uint8 arrays on the host.
        path: Where to.
        metadata: Further entries of the file's own metadata.
    """
    stored = []
    for name, stream in streams.items():
        data = arrays.buffer_of(stream)
        stored.append(StoredTensor(name, "U8", (data.size,), data))
    own = {"splitzip": VERSION, "splitzip_tensors": json.dumps(list(streams))}
    _write(stored, Path(path), {**_foreign(metadata), **own})


def load_streams(path: Path_) -> dict[str, npt.NDArray[np.uint8]]:
    """Map a compressed safetensors file; return the streams in it, neither decoded nor verified.

    Raises:
        SplitZipError: It is no safetensors file, or says of itself what it does not hold.
    """
    stored, metadata = _read(Path(path))
    return {name: stored[name].data for name in _streams(Path(path), stored, metadata)}


def compress_file(
    source: Path_,
    target: Path_,
    *,
    bank: CodebookBank | None = None,
    code_bits: CodeBits = 4,
    threads: int | None = None,
    progress: Progress = lambda nbytes: None,
) -> FileInfo:
    """Compress a safetensors file into another; `target` appears whole or not at all.

    Args:
        source, target: Files; not the same one.
        bank, code_bits, threads: As for `save_file`.
        progress: Told the bytes of each tensor as it is done.

    Raises:
        SplitZipError: `source` is no safetensors file, or is compressed already.
    """
    _check_apart(source, target)
    stored, metadata = _read(Path(source))
    if "splitzip" in metadata:
        raise SplitZipError(f"{source} is compressed already")
    _write_compressed(list(stored.values()), Path(target), metadata, bank, code_bits, threads, progress)
    return inspect_file(target)


def decompress_file(
    source: Path_, target: Path_, *, threads: int | None = None, progress: Progress = lambda nbytes: None
) -> None:
    """Write the safetensors file that `compress_file` was given: same tensors, bits and metadata.

    Raises:
        SplitZipError: `source` is not compressed, or damaged; `target` is then not written.
    """
    _check_apart(source, target)
    stored, metadata = _read(Path(source))
    streams = _streams(Path(source), stored, metadata)
    if "splitzip" not in metadata:
        raise SplitZipError(f"{source} is not compressed by splitzip")
    restored = []
    for name, tensor in stored.items():
        if name in streams:
            with _named(source, name):
                info = inspect(tensor.data)
                bits = np.empty(info.shape, info.format.bits_dtype)
                decompress(tensor.data, out=bits, threads=threads)
            dtype = next(key for key, value in _FORMATS.items() if value == info.format.name)
            restored.append(StoredTensor(name, dtype, info.shape, bits.reshape(-1).view(np.uint8)))
        else:
            restored.append(tensor)
        progress(restored[-1].data.nbytes)
    plain = {key: value for key, value in metadata.items() if not key.startswith("splitzip")}
    _write(restored, Path(target), plain)


def inspect_file(path: Path_) -> FileInfo:
    """Tell what a safetensors file holds, from headers alone."""
    stored, metadata = _read(Path(path))
    streams = _streams(Path(path), stored, metadata)
    tensors = {}
    raw = 0
    for name, tensor in stored.items():
        if name in streams:
            with _named(path, name):
                info = inspect(tensor.data)
            tensors[name] = (info.format.name, info.shape, info.ratio)
            raw += info.raw_nbytes
        else:
            tensors[name] = (tensor.dtype, tensor.shape, 1.0)
            raw += tensor.data.nbytes
    stored_bytes = sum(tensor.data.nbytes for tensor in stored.values())
    return FileInfo(raw, stored_bytes, tuple(sorted(streams)), tensors)


def verify_file(path: Path_, *, threads: int | None = None, progress: Progress = lambda nbytes: None) -> FileInfo:
    """Decode every compressed tensor, one at a time, checksums compared; return what the file holds.

    Raises:
        SplitZipError: A tensor is damaged; it is named.
    """
    stored, metadata = _read(Path(path))
    for name in _streams(Path(path), stored, metadata):
        with _named(path, name):
            decompress(stored[name].data, threads=threads)
        progress(stored[name].data.nbytes)
    return inspect_file(path)


def compress_files(
    pairs: Iterable[tuple[Path_, Path_]], *, executor: Executor | None = None, **options: Any
) -> list[FileInfo]:
    """Compress several files, `compress_file(source, target)` for each pair, on an executor if one is given."""
    jobs = [(str(source), str(target)) for source, target in pairs]
    if executor is None:
        return [compress_file(*job, **options) for job in jobs]
    futures = [executor.submit(compress_file, *job, **options) for job in jobs]
    return [future.result() for future in futures]


def _write_compressed(
    stored: list[StoredTensor],
    target: Path,
    metadata: dict[str, str],
    bank: CodebookBank | None,
    code_bits: CodeBits,
    threads: int | None,
    progress: Progress,
) -> None:
    metadata = _foreign(metadata)
    result, names = [], []
    for tensor in stored:
        form = tensor.format
        kept = tensor
        if form is not None and tensor.data.size:
            bits = tensor.data.view(form.bits_dtype).reshape(tensor.shape)
            data = _compressed(tensor.name, bits, form, bank, code_bits, threads)
            if data.nbytes < tensor.data.nbytes:
                names.append(tensor.name)
                kept = StoredTensor(tensor.name, "U8", (data.nbytes,), data)
        result.append(kept)
        progress(tensor.data.nbytes)
    _write(result, target, {**metadata, "splitzip": VERSION, "splitzip_tensors": json.dumps(names)})


def _foreign(metadata: Mapping[str, str] | None) -> dict[str, str]:
    metadata = dict(metadata or {})
    if any(key.startswith("splitzip") for key in metadata):
        raise SplitZipError("metadata entries that begin with 'splitzip' are for this package's own use")
    return metadata


def _compressed(
    name: str,
    bits: arrays.Bits,
    form: FloatFormat,
    bank: CodebookBank | None,
    code_bits: CodeBits,
    threads: int | None,
) -> npt.NDArray[np.uint8]:
    if bank is not None and next(iter(bank.values())).format == form:
        codec = Codec(bank, threads=threads)
        frames = codec.encode_frames(bits, name, dtype=form)
        return np.concatenate([frame.buffer for frame in frames])
    data = compress(bits, dtype=form, code_bits=code_bits, frame_elems=FRAME_ELEMENTS, threads=thread_count(threads))
    return np.frombuffer(data, np.uint8)


def _read(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Map a file; the library checks its header, we only place the tensors."""
    safetensors = _safetensors()
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            metadata = dict(file.metadata() or {})
    except safetensors.SafetensorError as error:
        raise FormatError(f"{path} is not a safetensors file: {error}") from error
    mapped = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(mapped[:8].tobytes(), "little")
    header = json.loads(mapped[8 : 8 + length].tobytes())
    header.pop("__metadata__", None)
    data = mapped[8 + length :]
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        tensors[name] = StoredTensor(name, entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, metadata


def _write(tensors: list[StoredTensor], target: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file: the length of a JSON header, the header, the tensors' bytes without gaps.

    The library's own writer wants all of it in memory at once.
    """
    if unknown := sorted({tensor.dtype for tensor in tensors} - set(_SIZES)):
        raise SplitZipError(f"tensors of type {', '.join(unknown)} are not known here")
    # Wide types first, as the library has it: so all stay aligned.
    ordered = sorted(tensors, key=lambda tensor: (-_SIZES[tensor.dtype], tensor.name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for tensor in ordered:
        begin, end = end, end + tensor.data.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in ordered:
                file.write(tensor.data.data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _streams(path: Path, stored: Mapping[str, StoredTensor], metadata: Mapping[str, str]) -> set[str]:
    """Return the names of the compressed tensors."""
    if "splitzip" not in metadata:
        return set()
    if metadata["splitzip"] != VERSION:
        raise FormatError(f"{path} was written by a newer splitzip (file version {metadata['splitzip']!r})")
    try:
        names = json.loads(metadata["splitzip_tensors"])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("not a list of names")
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{path}: the list of compressed tensors is damaged: {error}") from error
    for name in names:
        if name not in stored or stored[name].dtype != "U8":
            raise FormatError(f"{path}: the compressed tensor {name!r} is not there")
    return set(names)


def _stored(name: str, x: Any) -> StoredTensor:
    """Describe an array as safetensors would store it."""
    own = arrays.format_or_integer(x.dtype) if _known(x) else None
    if own is not None:
        view = arrays.as_bits(x)
        dtype = next((key for key, value in _FORMATS.items() if value == own.name), None)
        if dtype is None:
            raise SplitZipError(f"safetensors has no type for {own.name}; tensor {name!r} cannot be stored")
        return StoredTensor(name, dtype, view.shape, view.bits.view(np.uint8))
    plain = np.ascontiguousarray(x.detach().numpy() if hasattr(x, "detach") else np.asarray(x))
    dtype = next((key for key, value in _OTHERS.items() if value == plain.dtype.name), None)
    if dtype is None or not plain.dtype.isnative:
        raise SplitZipError(f"safetensors has no type for {plain.dtype}; tensor {name!r} cannot be stored")
    return StoredTensor(name, dtype, tuple(plain.shape), plain.reshape(-1).view(np.uint8))


def _known(x: Any) -> bool:
    try:
        arrays.format_or_integer(x.dtype)
    except SplitZipError:
        return False
    return True


def _as_array(tensor: StoredTensor, like: Like) -> Any:
    """Make an array of a tensor that is not compressed."""
    data = np.array(tensor.data)  # out of the file
    if tensor.format is not None:
        result, bits = arrays.allocate(tensor.format, tensor.shape, like)
        bits[:] = data.view(tensor.format.bits_dtype)
        return arrays.finish(result, like)
    if tensor.dtype not in _OTHERS:
        raise SplitZipError(f"tensor {tensor.name!r} has type {tensor.dtype}, which is not known here")
    plain = data.view(_OTHERS[tensor.dtype]).reshape(tensor.shape)
    if like == "torch":
        return arrays.import_library("torch").from_numpy(plain)
    return arrays.finish(plain, like)


@contextmanager
def _named(path: Path_, name: str) -> Iterator[None]:
    """Say in errors which tensor of which file they are about."""
    try:
        yield
    except SplitZipError as error:
        raise type(error)(f"{path}, tensor {name!r}: {error}") from error


def _check_apart(source: Path_, target: Path_) -> None:
    if Path(target).exists() and os.path.samefile(source, target):
        raise SplitZipError(f"source and target are the same file: {source}")


def _ignore(nbytes: int) -> None:
    pass


def _safetensors() -> Any:
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise DeviceUnavailable(
            "safetensors files need safetensors: pip install 'sprigs-splitzip[safetensors]'"
        ) from error
    return safetensors
