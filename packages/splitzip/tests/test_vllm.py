"""The vLLM connector: driven step by step as vLLM 0.33.0 drives one, on stand-ins of its base classes or on its own."""

import pickle
import subprocess
import sys
import types

import numpy as np
import pytest

from sprigs_splitzip import CodebookBank, DeviceUnavailable, LayoutMismatch, SplitZipError
from sprigs_splitzip.integrations import vllm
from sprigs_splitzip.io import load_file

torch = pytest.importorskip("torch")

LAYERS = ("model.layers.0.attn", "model.layers.1.attn")
BLOCK, FRAME = 4, 3  # tokens a block, blocks a frame: prefixes are shared in steps of 12 tokens


class KVConnectorMetadata:
    """vLLM's, which is empty too."""


class KVConnectorBase_V1:
    """What the connector uses of vLLM's base class."""

    def __init__(self, vllm_config, role, kv_cache_config):
        self._connector_metadata = None
        self._kv_transfer_config = vllm_config.kv_transfer_config

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata


@pytest.fixture
def connector(monkeypatch):
    name = ""
    for part in ("vllm", "distributed", "kv_transfer", "kv_connector", "v1", "base"):
        parent, name = name, f"{name}.{part}".strip(".")
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        if parent:
            setattr(sys.modules[parent], part, module)
    module.KVConnectorBase_V1, module.KVConnectorMetadata = KVConnectorBase_V1, KVConnectorMetadata
    vllm.classes.cache_clear()
    yield vllm.SplitZipConnector
    vllm.classes.cache_clear()


class TransferConfig:
    kv_role, is_kv_producer = "kv_both", True

    def __init__(self, **extra):
        self.extra = extra

    def get_from_extra_config(self, key, default):
        return self.extra.get(key, default)


def a_config(path, *, rank=0, world_size=1, cache_dtype="auto", model="a/model", **extra):
    return types.SimpleNamespace(
        kv_transfer_config=TransferConfig(shared_storage_path=str(path), blocks_per_frame=FRAME, **extra),
        model_config=types.SimpleNamespace(model=model, revision=None, dtype=torch.bfloat16),
        cache_config=types.SimpleNamespace(block_size=BLOCK, cache_dtype=cache_dtype, num_gpu_blocks=None),
        parallel_config=types.SimpleNamespace(
            rank=rank, world_size=world_size, tensor_parallel_size=world_size, pipeline_parallel_size=1
        ),
    )


def a_request(name, tokens, *, mm=(), lora=None, salt=None):
    features = [types.SimpleNamespace(identifier=i) for i in mm]
    adapter = None if lora is None else types.SimpleNamespace(lora_name=lora)
    return types.SimpleNamespace(
        request_id=name, prompt_token_ids=tokens, mm_features=features, lora_request=adapter, cache_salt=salt
    )


class Vllm:
    """A scheduler and its workers, as far as a connector sees them. What attention would compute is a function of the
    tokens so far, so that every block's contents can be checked."""

    def __init__(self, connector, path, *, n_blocks=64, page_dim=0, world_size=1, dtype=torch.bfloat16, **options):
        self.path, self.n_blocks, self.page_dim, self.dtype = path, n_blocks, page_dim, dtype
        groups = types.SimpleNamespace(num_blocks=n_blocks, kv_cache_groups=["one"])
        configs = [a_config(path, rank=r, world_size=world_size, **options) for r in range(world_size)]
        self.scheduler = connector(configs[0], "scheduler", groups)
        self.workers = [connector(config, "worker", groups) for config in configs]
        shape = (n_blocks, 2, BLOCK, 2, 8) if page_dim == 0 else (2, n_blocks, BLOCK, 2, 8)
        self.caches = [{name: self._random(shape) for name in LAYERS} for _ in self.workers]
        for worker, caches in zip(self.workers, self.caches, strict=True):
            worker.register_kv_caches(caches)
        self.free = list(np.random.default_rng(0).permutation(n_blocks))
        self.loaded = self.recomputed = 0
        self.failed = set()

    def _random(self, shape):
        return torch.randn(shape).to(self.dtype) if self.dtype != torch.uint8 else torch.randint(0, 100, shape).byte()

    def values(self, rank, layer, tokens, position):
        """What the layer's cache holds for a token: K and V."""
        seed = hash((rank, LAYERS.index(layer), tuple(tokens[: position + 1]))) % 2**32
        values = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, 2, 8)))
        return values.to(self.dtype) if self.dtype != torch.uint8 else (values * 20 + 100).byte()

    def slot(self, cache, block, offset):
        page = cache.movedim(self.page_dim, 0)[block]
        return page[:, offset]

    def step(self, request, blocks, computed, scheduled, *, new, resumed=False):
        """Run one step; return the blocks that failed to load."""
        output = types.SimpleNamespace(
            scheduled_new_reqs=[
                types.SimpleNamespace(req_id=request.request_id, block_ids=(blocks,), num_computed_tokens=computed)
            ]
            if new
            else [],
            scheduled_cached_reqs=types.SimpleNamespace(
                req_ids=[] if new else [request.request_id],
                resumed_req_ids={request.request_id} if resumed else set(),
                new_block_ids=[(blocks,)] if resumed else [None],
                num_computed_tokens=[computed],
            ),
            num_scheduled_tokens={request.request_id: scheduled},
        )
        metadata = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(output)))
        failed = set()
        for rank, (worker, caches) in enumerate(zip(self.workers, self.caches, strict=True)):
            worker.bind_connector_metadata(metadata)
            worker.start_load_kv(types.SimpleNamespace(no_compile_layers={}))
            for layer, cache in caches.items():
                worker.wait_for_layer_load(layer)
                for position in range(computed, computed + scheduled):
                    target = self.slot(cache, blocks[position // BLOCK], position % BLOCK)
                    target.copy_(self.values(rank, layer, request.prompt_token_ids, position))
                worker.save_kv_layer(layer, cache, None)
            worker.wait_for_save()
            failed |= worker.get_block_ids_with_load_errors()
            assert worker.get_block_ids_with_load_errors() == set(), "reported once"
        self.scheduler.update_connector_output(types.SimpleNamespace(invalid_block_ids=failed))
        return failed

    def run(self, request, *, local_blocks=(), chunk=1000, preempt=False):
        """Prefill a request; blocks in `local_blocks` are in the cache already, as vLLM's own prefix cache has them."""
        tokens = request.prompt_token_ids
        local = len(local_blocks) * BLOCK
        external, is_async = self.scheduler.get_num_new_matched_tokens(request, local)
        assert (external, is_async) == self.scheduler.get_num_new_matched_tokens(request, local)
        assert not is_async
        assert external % BLOCK == 0
        assert local + external < len(tokens)
        self.loaded = external
        needed = -(-len(tokens) // BLOCK)
        blocks = [*local_blocks, *(int(self.free.pop()) for _ in range(needed - len(local_blocks)))]
        self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(), external)
        done, new, resumed, self.recomputed = local + external, True, False, 0
        while done < len(tokens):
            scheduled = min(chunk, len(tokens) - done)
            failed = self.step(request, blocks, done, scheduled, new=new, resumed=resumed)
            resumed = False
            if failed:
                self.failed = {blocks.index(b) for b in failed}
                first = min(blocks.index(b) for b in failed)
                self.recomputed = done - first * BLOCK
                done = first * BLOCK
            else:
                done += scheduled
                if preempt and done < len(tokens):
                    # Its blocks are lost; it begins again with others.
                    preempt, resumed = False, True
                    blocks = [int(self.free.pop()) for _ in range(needed)]
                    external, _ = self.scheduler.get_num_new_matched_tokens(request, 0)
                    self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(), external)
                    done = external
            new = False
        for rank, caches in enumerate(self.caches):
            for layer, cache in caches.items():
                for position in range(len(tokens)):
                    found = self.slot(cache, blocks[position // BLOCK], position % BLOCK)
                    expected = self.values(rank, layer, tokens, position)
                    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8)), (layer, position)
        assert self.scheduler.request_finished(request, blocks) == (False, None)
        return blocks

    def files(self):
        return sorted(self.path.rglob("*.safetensors"))


def check_connector(connector, path):
    """Store, load, share a prefix, and recompute what is damaged."""
    first = Vllm(connector, path)
    prompt = list(range(100, 150))  # 4 whole frames and 2 tokens
    first.run(a_request("a", prompt))
    assert first.loaded == 0
    assert len(first.files()) == 4
    assert set(load_file(first.files()[0])) == set(LAYERS)
    second = Vllm(connector, path)
    second.run(a_request("b", prompt))
    assert second.loaded == 48
    second.run(a_request("c", [*prompt[:30], *range(25)]))
    assert second.loaded == 24, "the prefix they share, in whole frames"
    assert len(second.files()) == 6
    second.run(a_request("d", prompt[:48]))
    assert second.loaded == 36, "one token is left to compute"
    damaged = first.files()[0]
    data = bytearray(damaged.read_bytes())
    data[-30] ^= 1
    damaged.write_bytes(data)
    third = Vllm(connector, path)
    third.run(a_request("e", prompt))
    third.run(a_request("f", [*prompt[:30], *range(25)]))
    fourth = Vllm(connector, path)
    fourth.run(a_request("g", prompt))
    assert fourth.loaded == 48, "what was computed again was stored again"
    assert fourth.recomputed == 0


def test_prefixes(connector, tmp_path):
    check_connector(connector, tmp_path)


@pytest.mark.parametrize("chunk", [1, 5, 12, 17])
@pytest.mark.parametrize("page_dim", [0, 1])
def test_chunked_prefill(connector, tmp_path, chunk, page_dim):
    prompt = list(range(40))
    Vllm(connector, tmp_path, page_dim=page_dim).run(a_request("a", prompt), chunk=chunk)
    again = Vllm(connector, tmp_path, page_dim=page_dim)
    again.run(a_request("b", prompt), chunk=chunk)
    assert again.loaded == 36


@pytest.mark.parametrize("local", [1, 2, 3, 4, 8])
def test_blocks_in_the_cache_already_are_not_written(connector, tmp_path, local):
    prompt = list(range(40))
    host = Vllm(connector, tmp_path)
    blocks = host.run(a_request("a", prompt))
    kept = [{name: cache.clone() for name, cache in caches.items()} for caches in host.caches]
    host.workers[0].layers.decode = guarded(host.workers[0].layers.decode, host, blocks[:local], kept)
    host.run(a_request("b", prompt), local_blocks=blocks[:local])
    assert host.loaded == 36 - 4 * local


def guarded(decode, host, blocks, kept):
    def check(layer, cache, *arguments):
        cache.movedim(host.page_dim, 0)[blocks] = 7  # as though they held something else
        decode(layer, cache, *arguments)
        pages = cache.movedim(host.page_dim, 0)
        assert (pages[blocks] == 7).all(), "pages that are in use were written to"
        pages[blocks] = kept[0][layer].movedim(host.page_dim, 0)[blocks]

    return check


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("how", ["flip", "cut", "gone", "another layer's", "another prefix's", "rubbish"])
def test_every_block_of_a_bad_frame_is_reported_and_computed_again(connector, tmp_path, how, which):
    prompt = list(range(40))
    first = Vllm(connector, tmp_path)
    first.run(a_request("a", prompt))
    keys = vllm.chunk_keys(prompt, 12, vllm._root_of(a_request("a", prompt)))
    paths = [first.scheduler.store.path(key, 0) for key in keys]
    data = bytearray(paths[which].read_bytes())
    if how == "flip":
        data[-40] ^= 1
    elif how == "cut":
        del data[-5:]
    elif how == "another layer's":
        data = (
            data.replace(b"layers.0", b"layers.X").replace(b"layers.1", b"layers.0").replace(b"layers.X", b"layers.1")
        )
    elif how == "another prefix's":
        data = paths[(which + 1) % 3].read_bytes()
    elif how == "rubbish":
        data = b"rubbish" * 100
    second = Vllm(connector, tmp_path)
    if how == "gone":
        # It goes between the scheduler's look and the worker's.
        original = second.workers[0].start_load_kv
        second.workers[0].start_load_kv = lambda context: (paths[which].unlink(missing_ok=True), original(context))
    else:
        paths[which].write_bytes(data)
    second.run(a_request("b", prompt))
    assert second.loaded == 36
    assert second.failed == set(range(3 * which, 3 * which + 3)), "every block of the frame, and no other"
    assert second.recomputed == 36 - 12 * which
    third = Vllm(connector, tmp_path)
    third.run(a_request("c", prompt))
    assert third.loaded == 36
    assert third.recomputed == 0


def test_nothing_computed_after_a_failed_load_is_stored(connector, tmp_path):
    """The step goes on with blocks that hold anything; a longer prompt's further frames would be wrong."""
    prompt = list(range(60))
    first = Vllm(connector, tmp_path)
    first.run(a_request("a", prompt[:30]))
    (one, _) = first.files()
    one.write_bytes(b"rubbish")
    second = Vllm(connector, tmp_path)
    before = set(second.files())
    saved = []
    original = second.workers[0].wait_for_save
    second.workers[0].wait_for_save = lambda: (original(), saved.append(set(second.files())))
    second.run(a_request("b", prompt))
    assert saved[0] <= before, "nothing is stored in the step of the failure"
    assert len(saved[-1]) == 5, "all of it is once it was computed"


def test_preemption(connector, tmp_path):
    prompt = list(range(50))
    host = Vllm(connector, tmp_path)
    host.run(a_request("a", prompt), chunk=20, preempt=True)
    again = Vllm(connector, tmp_path)
    again.run(a_request("b", prompt), chunk=20, preempt=True)
    assert again.loaded == 48


def test_what_else_decides_on_the_cache(connector, tmp_path):
    prompt = list(range(40))
    host = Vllm(connector, tmp_path)
    host.run(a_request("a", prompt))
    for number, other in enumerate(({"mm": ["image"]}, {"lora": "adapter"}, {"salt": "s"})):
        assert host.scheduler.get_num_new_matched_tokens(a_request(f"b{number}", prompt, **other), 0) == (0, False)
    assert host.scheduler.get_num_new_matched_tokens(a_request("c", prompt), 0) == (36, False)
    assert host.scheduler.get_num_new_matched_tokens(a_request("d", None), 0) == (0, False)
    assert host.scheduler.get_num_new_matched_tokens(a_request("e", [1]), 0) == (0, False)
    for options in ({"model": "b"}, {"world_size": 2}, {"cache_dtype": "fp8"}):
        other = Vllm(connector, tmp_path, **options)
        assert other.scheduler.get_num_new_matched_tokens(a_request("f", prompt), 0) == (0, False)


def test_several_workers(connector, tmp_path):
    prompt = list(range(40))
    host = Vllm(connector, tmp_path, world_size=2)
    host.run(a_request("a", prompt))
    assert len(host.files()) == 6
    again = Vllm(connector, tmp_path, world_size=2)
    again.run(a_request("b", prompt))
    assert again.loaded == 36
    again.files()[0].unlink()
    third = Vllm(connector, tmp_path, world_size=2)
    third.run(a_request("c", prompt))
    assert third.loaded < 36, "a prefix is there when every worker has its part"
    assert len(third.files()) == 6


@pytest.mark.parametrize("name", ["fp8", "fp8_e5m2"])
def test_caches_of_raw_bytes(connector, tmp_path, name):
    prompt = list(range(40))
    Vllm(connector, tmp_path, dtype=torch.uint8, cache_dtype=name).run(a_request("a", prompt))
    again = Vllm(connector, tmp_path, dtype=torch.uint8, cache_dtype=name)
    again.run(a_request("b", prompt), local_blocks=[])
    assert again.loaded == 36


def test_a_bank(connector, tmp_path):
    prompt = list(range(40))
    path = tmp_path / "bank.json"
    samples = [(name, torch.randn(5000).bfloat16()) for name in LAYERS]
    CodebookBank.calibrate(samples, code_bits=3).save(path)
    Vllm(connector, tmp_path, bank=str(path)).run(a_request("a", prompt))
    again = Vllm(connector, tmp_path)
    again.run(a_request("b", prompt))
    assert again.loaded == 36, "frames say themselves how they were encoded"


def test_refusals(connector, tmp_path):
    groups = types.SimpleNamespace(num_blocks=8, kv_cache_groups=["one", "two"])
    with pytest.raises(SplitZipError, match="2 groups"):
        connector(a_config(tmp_path), "worker", groups)
    config = a_config(tmp_path)
    config.kv_transfer_config = TransferConfig()
    with pytest.raises(SplitZipError, match="shared_storage_path"):
        connector(config, "worker", None)
    config = a_config(tmp_path)
    config.kv_transfer_config.extra["blocks_per_frame"] = 0
    with pytest.raises(SplitZipError, match="positive"):
        connector(config, "worker", None)
    layers = vllm.LayerCodec("", 8)
    for shape in ((7, 4), (3, 2, 8), (8,)):
        with pytest.raises(LayoutMismatch):
            layers.encode("x", torch.zeros(shape), [0], "key")
    assert connector.requires_piecewise_for_cudagraph({})
    worker = connector(a_config(tmp_path), "worker", types.SimpleNamespace(num_blocks=8, kv_cache_groups=["one"]))
    assert not worker.requires_kv_delivery
    # A layer that cannot be stored does not stop the engine.
    worker.register_kv_caches({"x": torch.zeros(5, 5)})
    worker.bind_connector_metadata(vllm.SplitZipMetadata([], [vllm.Chunk("ab" * 32, [0, 1, 2])]))
    worker.save_kv_layer("x", torch.zeros(5, 5), None)
    worker.wait_for_save()
    assert not list(tmp_path.rglob("*.safetensors"))
    # Nor does a disk that is full.
    folder = worker.store.path("ab" * 32, 0).parent
    folder.write_text("no folder")
    worker.save_kv_layer("x", torch.randn(8, 4, 64).bfloat16(), None)
    worker.wait_for_save()


def test_layer_codec_alone():
    """Of use without vLLM."""
    layers = vllm.LayerCodec("model, rank 0", 10)
    cache = torch.randn(2, 10, 16, 2, 64).bfloat16()
    frame = layers.encode("l", cache, [3, 1, 4], "prefix")
    target = torch.zeros_like(cache)
    layers.decode("l", target, [0, 5, 9], "prefix", frame)
    assert torch.equal(target[:, [0, 5, 9]], cache[:, [3, 1, 4]])
    for arguments in (("m", target, [0, 5, 9], "prefix"), ("l", target, [0, 5, 9], "another")):
        with pytest.raises(LayoutMismatch):
            layers.decode(*arguments, frame)


def test_without_vllm(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    vllm.classes.cache_clear()
    with pytest.raises(DeviceUnavailable, match="pip install vllm"):
        _ = vllm.SplitZipConnector
    with pytest.raises(AttributeError):
        _ = vllm.Nothing


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # vLLM warns of its own plans
def test_on_the_real_base_class(tmp_path):
    """vLLM's own base classes, configuration and factory; no model is run."""
    module = "vllm.distributed.kv_transfer.kv_connector.v1.base"
    if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        pytest.skip("vllm cannot be imported here")
    from vllm.config.kv_transfer import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1 as Real

    vllm.classes.cache_clear()
    config = KVTransferConfig(
        kv_connector="SplitZipConnector",
        kv_connector_module_path="sprigs_splitzip.integrations.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"shared_storage_path": str(tmp_path)},
    )
    assert config.get_from_extra_config("shared_storage_path", None) == str(tmp_path)
    connector = KVConnectorFactory.get_connector_class(config)
    assert issubclass(connector, Real)
    assert not connector.__abstractmethods__
    check_connector(connector, tmp_path)
    vllm.classes.cache_clear()
