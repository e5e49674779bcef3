"""vLLM: a connector that keeps prefixes' KV caches compressed in shared storage, verified.

Written against vLLM 0.33.0, `vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnectorBase_V1(vllm_config, role,
kv_cache_config)`, which upstream calls experimental: `get_num_new_matched_tokens`, `update_state_after_alloc`,
`build_connector_meta` and `request_finished` in the scheduler; `register_kv_caches`, `start_load_kv`,
`wait_for_layer_load`, `save_kv_layer`, `wait_for_save` and `get_block_ids_with_load_errors` in the workers.

    vllm serve MODEL --disable-hybrid-kv-cache-manager --kv-transfer-config '{"kv_connector": "SplitZipConnector",
      "kv_connector_module_path": "sprigs_splitzip.integrations.vllm", "kv_role": "kv_both",
      "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"shared_storage_path": "/data/kv"}}'

Further entries of that configuration: `blocks_per_frame` (16: with blocks of 16 tokens, prefixes are shared in steps of
256), `bank` (path of a codebook bank, by layer name; default: codebooks calibrated on the first pages of each layer).

Each `blocks_per_frame` blocks of a prompt make a file, in it one frame a layer, encoded from the pages where they lie.
A frame that is missing, damaged, or of another model, layer, layout or prefix fails all its blocks:
`get_block_ids_with_load_errors` reports them, vLLM computes them again (with the policy above; its default is to fail
the request), and the file is removed. Nothing else is ever removed. What is computed in a step in which a load failed
is not stored. Models with several groups of KV caches are refused.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..bank import CodebookBank
from ..codebook import Codebook
from ..codec import Codec, decompress
from ..errors import DeviceUnavailable, FormatError, LayoutMismatch, SplitZipError
from ..io import load_streams, save_streams
from ..paged import decode_pages, encode_pages, layout_fingerprint

logger = logging.getLogger(__name__)


class LayerCodec:
    """Encodes and decodes pages of the layers of a paged cache; of use to connectors of one's own.

    Args:
        scope: What must agree for pages to be usable: model, ranks.
        n_blocks: Blocks of the cache; tells which dimension of a layer's tensor counts them.
        bank: Codebooks by layer name; None: calibrated on the first pages of each layer.
        dtype: Element format, for caches that are raw bytes (vLLM's FP8).
    """

    def __init__(self, scope: str, n_blocks: int, bank: CodebookBank | None = None, dtype: str | None = None) -> None:
        self.scope = scope
        self.n_blocks = n_blocks
        self.bank = bank
        self.dtype = dtype
        self._codebooks: dict[str, Codebook] = {}

    def encode(self, layer: str, cache: Any, blocks: Sequence[int], key: str) -> np.ndarray[Any, Any]:
        """Encode blocks of a layer into one frame, with a checksum, on the host; uint8.

        Args:
            layer: Its name.
            cache: Its tensor, on the host or a CUDA device.
            blocks: Which.
            key: What the blocks hold, such as a hash of the tokens; decoding asks for the same.

        Raises:
            SplitZipError: The cache is no paged one of a float format.
        """
        page_dim = self.page_dim(cache)
        codec = Codec(self._codebook(layer, cache, page_dim, blocks)).without_checksum()
        frame = encode_pages(
            cache, blocks, codec, page_dim=page_dim, dtype=self.dtype, tag=self._tag(layer, cache, page_dim, key)
        )
        sealed: np.ndarray[Any, Any] = frame.sealed().buffer
        return sealed

    def decode(self, layer: str, cache: Any, blocks: Sequence[int], key: str, frame: Any, skip: int = 0) -> None:
        """Decode what `encode` made into blocks of a layer.

        Args:
            layer, cache, blocks, key: As for `encode`.
            frame: The bytes.
            skip: So many of the blocks, from the first on, stay as they are.

        Raises:
            SplitZipError: The frame is damaged, or of another layer, layout or key. The blocks are then undefined.
        """
        page_dim = self.page_dim(cache)
        tag = self._tag(layer, cache, page_dim, key)
        if not skip:
            decode_pages(frame, cache, blocks, page_dim=page_dim, dtype=self.dtype, expected_tag=tag)
            return
        # Pages that are in use must not be written to, even with what they hold already.
        pages = cache.movedim(page_dim, 0)
        decoded = pages.new_empty((len(blocks), *pages.shape[1:]))
        decompress(frame, out=decoded, expected_dtype=self.dtype, expected_tag=tag)
        pages[list(blocks[skip:])] = decoded[skip:]

    def page_dim(self, cache: Any) -> int:
        """Return which dimension of a layer's tensor counts blocks.

        Raises:
            LayoutMismatch: Neither the first nor the second.
        """
        shape = tuple(getattr(cache, "shape", ()))
        for dim in (0, 1):
            if len(shape) > dim + 1 and shape[dim] == self.n_blocks:
                return dim
        raise LayoutMismatch(f"a layer of shape {shape} is no cache of {self.n_blocks} blocks")

    def _tag(self, layer: str, cache: Any, page_dim: int, key: str) -> int:
        page_shape = [d for i, d in enumerate(cache.shape) if i != page_dim]
        return layout_fingerprint(
            self.dtype or cache.dtype, page_shape, page_dim, model_id=f"{self.scope}\0{layer}\0{key}"
        )

    def _codebook(self, layer: str, cache: Any, page_dim: int, blocks: Sequence[int]) -> Codebook:
        if self.bank is not None:
            return self.bank.find(layer)
        if layer not in self._codebooks:
            sample = cache.movedim(page_dim, 0)[list(blocks[:4])].cpu()
            self._codebooks[layer] = Codebook.from_samples([sample], self.dtype or sample.dtype)
        return self._codebooks[layer]


@dataclass
class Chunk:
    """Consecutive blocks of a prompt that make up a file.

    Attributes:
        key: Hash of all tokens up to its end.
        blocks: Where they are in the cache.
        skip: So many of them are there already.
    """

    key: str
    blocks: list[int]
    skip: int = 0


@dataclass
class Tracked:
    """A request, as the scheduler's side knows it."""

    keys: list[str]
    blocks: list[int] = field(default_factory=list)
    stored: int = 0


class ChunkStore:
    """The files: whether they are there, and what is in them.

    Args:
        folder: Shared by all workers and the scheduler.
        scope: What must agree.
        world_size: Number of workers; each has a file of its own.
    """

    def __init__(self, folder: str | os.PathLike[str], scope: str, world_size: int) -> None:
        self.folder = Path(folder) / hashlib.sha256(scope.encode()).hexdigest()[:16]
        self.world_size = world_size
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str, rank: int) -> Path:
        """Return the file of a chunk and a worker."""
        return self.folder / key[:2] / f"{key[2:]}.{rank}.safetensors"

    def exists(self, key: str) -> bool:
        """Whether every worker has its file."""
        return all(self.path(key, rank).exists() for rank in range(self.world_size))

    def save(self, key: str, rank: int, frames: dict[str, Any]) -> None:
        """Write a worker's file; it appears whole or not at all."""
        path = self.path(key, rank)
        path.parent.mkdir(exist_ok=True)
        save_streams(frames, path)

    def load(self, key: str, rank: int) -> dict[str, Any]:
        """Return a worker's frames by layer.

        Raises:
            SplitZipError: The file is damaged.
            OSError: It is not there.
        """
        return dict(load_streams(self.path(key, rank)))

    def remove(self, key: str) -> None:
        """Remove a chunk's files, of all workers: without one the others are of no use."""
        for rank in range(self.world_size):
            self.path(key, rank).unlink(missing_ok=True)


def chunk_keys(tokens: Sequence[int], chunk_tokens: int, root: str) -> list[str]:
    """Return the key of each whole chunk of a prompt: a hash of `root` and of all tokens up to the chunk's end."""
    digest = hashlib.sha256(root.encode())
    keys = []
    for start in range(0, len(tokens) - chunk_tokens + 1, chunk_tokens):
        digest.update(np.asarray(tokens[start : start + chunk_tokens], "<u8").tobytes())
        keys.append(digest.hexdigest())
    return keys


def _root_of(request: Any) -> str:
    """Return what besides the tokens decides on a prompt's KV cache."""
    features = [getattr(f, "identifier", repr(f)) for f in getattr(request, "mm_features", None) or []]
    lora = getattr(request, "lora_request", None)
    return repr((features, getattr(lora, "lora_name", None), getattr(request, "cache_salt", None)))


def _scope_of(config: Any, blocks_per_frame: int) -> str:
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    return repr(
        (
            str(model.model), str(getattr(model, "revision", None)), str(getattr(model, "dtype", None)),
            str(cache.cache_dtype), int(cache.block_size), int(parallel.world_size),
            int(parallel.tensor_parallel_size), int(parallel.pipeline_parallel_size), blocks_per_frame,
        )
    )  # fmt: skip


@lru_cache(maxsize=1)
def classes() -> tuple[Any, Any]:
    """Make the connector and its metadata, subclasses of vLLM's.

    Raises:
        DeviceUnavailable: vLLM is not installed.
    """
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1 import base
    except ModuleNotFoundError as error:
        raise DeviceUnavailable(f"vLLM is not usable ({error}): pip install vllm") from error

    class SplitZipMetadata(base.KVConnectorMetadata):  # type: ignore[misc]
        """What the workers have to do in a step."""

        def __init__(self, loads: list[Chunk], stores: list[Chunk]) -> None:
            self.loads = loads
            self.stores = stores

    # It travels from the scheduler to the workers by pickle, which looks it up in this module.
    SplitZipMetadata.__qualname__ = "SplitZipMetadata"

    class SplitZipConnector(base.KVConnectorBase_V1):  # type: ignore[misc]
        """Prefixes in a `ChunkStore`."""

        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
            super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
            option = vllm_config.kv_transfer_config.get_from_extra_config
            folder = option("shared_storage_path", None)
            if folder is None:
                raise SplitZipError(
                    'kv_connector_extra_config lacks "shared_storage_path", the folder to keep caches in'
                )
            groups = getattr(kv_cache_config, "kv_cache_groups", None)
            if groups is not None and len(groups) > 1:
                raise SplitZipError(f"a model with {len(groups)} groups of KV caches is not supported")
            self.blocks_per_frame = int(option("blocks_per_frame", 16))
            if self.blocks_per_frame < 1:
                raise SplitZipError(f"blocks_per_frame is positive; got {self.blocks_per_frame}")
            self.block_size = int(vllm_config.cache_config.block_size)
            self.chunk_tokens = self.blocks_per_frame * self.block_size
            self.rank = int(getattr(vllm_config.parallel_config, "rank", 0))
            scope = _scope_of(vllm_config, self.blocks_per_frame)
            self.store = ChunkStore(folder, scope, int(vllm_config.parallel_config.world_size))
            bank = option("bank", None)
            cache_dtype = str(vllm_config.cache_config.cache_dtype)
            raw = None
            if cache_dtype.startswith("fp8"):
                raw = "e5m2" if "e5m2" in cache_dtype else "e4m3fn"
            n_blocks = int(getattr(kv_cache_config, "num_blocks", 0) or vllm_config.cache_config.num_gpu_blocks or 0)
            self.layers = LayerCodec(scope, n_blocks, CodebookBank.load(bank) if bank else None, raw)
            self._caches: dict[str, Any] = {}
            self._failed: set[int] = set()
            self._spoiled = False
            self._pending: dict[str, dict[str, Any]] = {}
            self._tracked: dict[str, Tracked] = {}
            self._loads: dict[str, int] = {}

        @property
        def requires_kv_delivery(self) -> bool:
            """A save that does not come about is a later miss, nothing worse."""
            return False

        @classmethod
        def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
            """Layers are saved one by one, which a whole captured graph would leave out."""
            return True

        # ------------------------------------------------------------------------------------------ in the scheduler

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
            tokens = request.prompt_token_ids
            if tokens is None:  # a prompt of embeddings
                return 0, False
            known = self._tracked.get(request.request_id)
            if known is None:
                known = Tracked(chunk_keys(tokens, self.chunk_tokens, _root_of(request)))
                self._tracked[request.request_id] = known
            # One token at least is left to compute: without it there would be no logits.
            matched = 0
            for key in known.keys[: (len(tokens) - 1) // self.chunk_tokens]:
                if not self.store.exists(key):
                    break
                matched += self.chunk_tokens
            return max(0, matched - num_computed_tokens), False

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            if num_external_tokens > 0:
                self._loads[request.request_id] = num_external_tokens

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            loads: list[Chunk] = []
            stores: list[Chunk] = []
            for new in scheduler_output.scheduled_new_reqs:
                if new.req_id in self._tracked:
                    self._tracked[new.req_id].blocks = list(new.block_ids[0])
                    self._plan(new.req_id, new.num_computed_tokens, scheduler_output, loads, stores)
            cached = scheduler_output.scheduled_cached_reqs
            for i, req_id in enumerate(cached.req_ids):
                known = self._tracked.get(req_id)
                if known is None:
                    continue
                fresh = cached.new_block_ids[i]
                if req_id in cached.resumed_req_ids:
                    known.blocks = list(fresh[0]) if fresh else []
                elif fresh:
                    known.blocks += fresh[0]
                self._plan(req_id, cached.num_computed_tokens[i], scheduler_output, loads, stores)
            self._loads.clear()
            return SplitZipMetadata(loads, stores)

        def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
            self._tracked.pop(request.request_id, None)
            self._loads.pop(request.request_id, None)
            return False, None

        def update_connector_output(self, connector_output: Any) -> None:
            invalid = set(getattr(connector_output, "invalid_block_ids", None) or ())
            for known in self._tracked.values():
                if not invalid.isdisjoint(known.blocks):
                    known.stored = 0  # it is computed again; what is missing then is stored then

        def _plan(self, req_id: str, computed: int, output: Any, loads: list[Chunk], stores: list[Chunk]) -> None:
            """Say what to load and to store for a request of which `computed` tokens count as computed already."""
            known = self._tracked[req_id]
            if req_id in self._loads:
                begin = (computed - self._loads[req_id]) // self.block_size  # blocks that were in the cache before
                for number in range(begin // self.blocks_per_frame, computed // self.chunk_tokens):
                    chunk = self._chunk(known, number)
                    chunk.skip = max(0, begin - number * self.blocks_per_frame)
                    loads.append(chunk)
                known.stored = max(known.stored, computed // self.chunk_tokens)
            done = computed + output.num_scheduled_tokens.get(req_id, 0)
            while known.stored < min(len(known.keys), done // self.chunk_tokens):
                chunk = self._chunk(known, known.stored)
                if len(chunk.blocks) < self.blocks_per_frame:
                    break
                if not self.store.exists(chunk.key):
                    stores.append(chunk)
                known.stored += 1

        def _chunk(self, known: Tracked, number: int) -> Chunk:
            first = number * self.blocks_per_frame
            return Chunk(known.keys[number], known.blocks[first : first + self.blocks_per_frame])

        # ------------------------------------------------------------------------------------------ in the workers

        def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
            self._caches = dict(kv_caches)

        def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
            caches = self._caches or {
                name: layer.kv_cache
                for name, layer in forward_context.no_compile_layers.items()
                if getattr(layer, "kv_cache", None) is not None
            }
            self._spoiled = False
            for chunk in self._get_connector_metadata().loads:
                try:
                    frames = self.store.load(chunk.key, self.rank)
                    for name, cache in caches.items():
                        if name not in frames:
                            raise FormatError(f"the file has no layer {name!r}")
                        self.layers.decode(name, cache, chunk.blocks, chunk.key, frames[name], chunk.skip)
                except (SplitZipError, OSError) as error:
                    logger.warning("blocks %s are computed again: %s", chunk.blocks[chunk.skip :], error)
                    self._failed.update(chunk.blocks[chunk.skip :])
                    self._spoiled = True
                    self.store.remove(chunk.key)

        def wait_for_layer_load(self, layer_name: str) -> None:
            """All layers were loaded before the forward pass began."""

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
            if self._spoiled:
                return  # this step reads blocks that did not load: what it computes must not pass for a prefix's
            for chunk in self._get_connector_metadata().stores:
                try:
                    frame = self.layers.encode(layer_name, kv_layer, chunk.blocks, chunk.key)
                except SplitZipError as error:
                    logger.warning("layer %s cannot be stored: %s", layer_name, error)
                    continue
                self._pending.setdefault(chunk.key, {})[layer_name] = frame

        def wait_for_save(self) -> None:
            pending, self._pending = self._pending, {}
            for key, frames in pending.items():
                if any(name not in frames for name in self._caches):
                    continue  # without one layer the others are of no use
                try:
                    self.store.save(key, self.rank, frames)
                except OSError as error:
                    logger.warning("a prefix could not be stored: %s", error)

        def get_block_ids_with_load_errors(self) -> set[int]:
            failed, self._failed = self._failed, set()
            return failed

    return SplitZipConnector, SplitZipMetadata


def __getattr__(name: str) -> Any:
    if name in ("SplitZipConnector", "SplitZipMetadata"):
        return classes()[name == "SplitZipMetadata"]
    raise AttributeError(name)
