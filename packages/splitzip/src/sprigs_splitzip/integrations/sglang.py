"""SGLang: a storage backend of its hierarchical cache (HiCache) that keeps pages compressed on disk, verified.

Written against SGLang 0.5.23, `sglang.srt.mem_cache.hicache_storage.HiCacheStorage`: `get(key, target_location,
target_sizes)`, `batch_get(keys, target_locations, target_sizes)`, `set(key, value, target_location, target_sizes)`,
`batch_set(keys, values, ...)`, `exists(key)`, `batch_exists(keys, extra_info)`, `batch_get_v1(keys, host_indices,
extra_info)`, `batch_set_v1(...)`, `clear()`, `get_stats()`; of the host's memory pool `page_size`,
`get_data_page(index)`, `get_dummy_flat_data_page()` and `set_from_flat_data_page(index, page)`. Start the server with

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name": "splitzip",
      "module_path": "sprigs_splitzip.integrations.sglang", "class_name": "SplitZipStorage", "path": "/data/kv"}'

Further entries of that configuration: `bank` (path of a codebook bank; default: a codebook chosen for each page),
`code_bits` (3, 4 or "auto"), `max_bytes` (on disk, for each rank; the pages used longest ago go first), `interface_v1`
(1: SGLang hands over indices of its pool instead of pages). Pools other than keys and values (the v2 interface, for
hybrid models) are not kept. A page that is damaged, or of another key, rank or model, is a miss, and is removed.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash

from ..arrays import format_or_integer, import_library
from ..bank import CodebookBank
from ..codebook import CodeBits
from ..codec import Codec, compress, decompress
from ..errors import DeviceUnavailable, SplitZipError, UnsupportedDtype


class PageStore:
    """Tensors by key, compressed, a file each; a file appears whole or not at all. Safe to use from several threads.

    Args:
        folder: Where the files are; made if it is not there.
        scope: What else must be the same for a page to be usable: model, rank, layout. Each has a folder of its own.
        bank: Codebooks, by the key "default"; None: one chosen for each page.
        code_bits: For codebooks chosen here.
        max_bytes: On disk; the pages used longest ago go first. None: no limit.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        scope: str,
        bank: CodebookBank | None = None,
        code_bits: CodeBits = 4,
        max_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None and max_bytes <= 0:
            raise SplitZipError(f"max_bytes is positive; got {max_bytes}")
        self.folder = Path(folder) / hashlib.sha256(scope.encode()).hexdigest()[:16]
        self.scope = scope
        self.bank = bank
        self.code_bits: CodeBits = code_bits
        self.max_bytes = max_bytes
        self.raw_bytes = self.written_bytes = self.damaged = 0
        self._lock = threading.Lock()
        self.folder.mkdir(parents=True, exist_ok=True)
        found = [(path, path.stat()) for path in self.folder.glob("??/*.splz")]
        found.sort(key=lambda item: item[1].st_mtime_ns)
        self._sizes = OrderedDict((path, stat.st_size) for path, stat in found)  # the one used longest ago first
        self._total = sum(self._sizes.values())

    def path(self, key: str) -> Path:
        """Return the file of a key. Keys are hashed: none reaches outside the folder."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.splz"

    def tag(self, key: str) -> int:
        """Return the frames' tag: a file under another key's name is refused."""
        return int(xxhash.xxh3_64_intdigest(f"{self.scope}\0{key}".encode()))

    def put(self, key: str, page: Any) -> bool:
        """Store a tensor, unless the key is there; return False if it alone exceeds `max_bytes`.

        Raises:
            SplitZipError: It cannot be encoded.
            OSError: It cannot be written.
        """
        path = self.path(key)
        if path.exists():
            return True
        data = self._encoded(key, page.detach())
        if self.max_bytes is not None and len(data) > self.max_bytes:
            return False
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            temporary.write_bytes(data)
            _touch(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        with self._lock:
            self.raw_bytes += page.numel() * page.element_size()
            self.written_bytes += len(data)
            self._total += len(data) - self._sizes.pop(path, 0)
            self._sizes[path] = len(data)
            while self.max_bytes is not None and self._total > self.max_bytes:
                self._forget(next(iter(self._sizes)))
        return True

    def get(self, key: str, out: Any) -> bool:
        """Read a tensor into `out`; return whether it was there and sound. Otherwise `out` is undefined."""
        path = self.path(key)
        try:
            data = path.read_bytes()
            _touch(path)  # so that the order of use outlives this process
        except FileNotFoundError:
            return False
        try:
            decompress(data, out=out if _is_float(out) else _bytes_of(out), expected_tag=self.tag(key))
        except SplitZipError:
            with self._lock:
                self.damaged += 1
                self._forget(path)
            return False
        with self._lock:
            if path in self._sizes:
                self._sizes.move_to_end(path)
        return True

    def exists(self, key: str) -> bool:
        """Whether there is a file for a key; it may yet prove damaged."""
        return self.path(key).exists()

    def clear(self) -> None:
        """Remove all pages of this scope."""
        with self._lock:
            for path in self.folder.glob("??/*.splz"):
                self._forget(path)

    def _forget(self, path: Path) -> None:
        self._total -= self._sizes.pop(path, 0)
        path.unlink(missing_ok=True)

    def _encoded(self, key: str, page: Any) -> bytes:
        tag = self.tag(key)
        if not _is_float(page):
            # Pools of bytes, scales and states among them: stored as they are, with a checksum.
            return compress(_bytes_of(page.contiguous()), dtype="opaque", tag=tag)
        if self.bank is None:
            return compress(page, code_bits=self.code_bits, tag=tag)
        return Codec(self.bank).encode(page, "default", tag=tag).tobytes()


def _touch(path: Path) -> None:
    now = time.time_ns()  # finer than what the file system takes by itself
    os.utime(path, ns=(now, now))


def _is_float(page: Any) -> bool:
    try:
        return format_or_integer(page.dtype) is not None
    except UnsupportedDtype:
        return False


def _bytes_of(page: Any) -> Any:
    return page.reshape(-1).view(import_library("torch").uint8).numpy()


def scope_of(config: Any) -> str:
    """Return what must agree for a page to be usable, from a `HiCacheStorageConfig`: model, ranks, layout."""
    names = (
        "model_name", "tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size", "dcp_rank",
        "dcp_size", "logical_page_size", "is_mla_model", "is_page_first_layout",
    )  # fmt: skip
    values = {name: getattr(config, name, None) for name in names}
    if values["is_mla_model"]:
        # Replicated over the ranks, apart from the shards of decode context parallelism.
        values["tp_rank"] = values["dcp_rank"]
    return repr(sorted(values.items()))


@lru_cache(maxsize=1)
def storage_class() -> Any:
    """Make the subclass of SGLang's `HiCacheStorage`.

    Raises:
        DeviceUnavailable: SGLang is not installed.
    """
    try:
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorage
    except ModuleNotFoundError as error:
        raise DeviceUnavailable(f"SGLang is not usable ({error}): pip install sglang") from error

    class SplitZipStorage(HiCacheStorage):  # type: ignore[misc]
        """Pages in a `PageStore`."""

        def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
            extra = dict(getattr(storage_config, "extra_config", None) or {})
            if "path" not in extra:
                raise SplitZipError('the extra configuration of HiCache lacks "path", the folder to keep pages in')
            bank = CodebookBank.load(extra["bank"]) if extra.get("bank") else None
            self.store = PageStore(
                extra["path"],
                scope_of(storage_config),
                bank,
                code_bits=extra.get("code_bits", 4),
                max_bytes=extra.get("max_bytes"),
            )

        def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
            if target_location is None:
                raise SplitZipError("a page is read into target_location; None was given")
            return target_location if self.store.get(key, target_location) else None

        def batch_get(self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
            return [self.get(key, target) for key, target in zip(keys, target_locations, strict=True)]

        def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
            try:
                return self.store.put(key, value)
            except (OSError, SplitZipError):
                return False  # SGLang logs it and goes on without the page

        def batch_set(
            self, keys: Sequence[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
        ) -> bool:
            done = [self.set(key, value) for key, value in zip(keys, values, strict=True)]  # each, whatever the others
            return all(done)

        def exists(self, key: str) -> bool:
            return self.store.exists(key)

        def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
            pool = self.mem_pool_host
            done: list[bool] = []
            for key, index in zip(keys, host_indices[:: pool.page_size], strict=True):
                page = pool.get_dummy_flat_data_page()
                done.append(self.store.get(key, page))
                if not done[-1]:
                    # What follows a missing page is of no use to SGLang.
                    return done + [False] * (len(keys) - len(done))
                pool.set_from_flat_data_page(index, page)
            return done

        def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
            pool = self.mem_pool_host
            indices = host_indices[:: pool.page_size]
            return [self.set(key, pool.get_data_page(index)) for key, index in zip(keys, indices, strict=True)]

        def clear(self) -> None:
            self.store.clear()

        def close(self) -> None:
            """Nothing is open between calls."""

    return SplitZipStorage


def __getattr__(name: str) -> Any:
    if name == "SplitZipStorage":
        return storage_class()
    raise AttributeError(name)
