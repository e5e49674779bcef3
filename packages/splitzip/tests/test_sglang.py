"""The HiCache backend: against stand-ins with SGLang 0.5.23's signatures, and its real base class where it is."""

import abc
import subprocess
import sys
import types

import pytest

from sprigs_splitzip import CodebookBank, DeviceUnavailable, SplitZipError
from sprigs_splitzip.integrations import sglang

torch = pytest.importorskip("torch")


class HiCacheStorage(abc.ABC):
    """SGLang's abstract base, its signatures."""

    def register_mem_pool_host(self, mem_pool_host):
        self.mem_pool_host = mem_pool_host

    @abc.abstractmethod
    def get(self, key, target_location=None, target_sizes=None): ...
    @abc.abstractmethod
    def batch_get(self, keys, target_locations=None, target_sizes=None): ...
    @abc.abstractmethod
    def set(self, key, value=None, target_location=None, target_sizes=None): ...
    @abc.abstractmethod
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None): ...
    @abc.abstractmethod
    def exists(self, key): ...

    def batch_exists(self, keys, extra_info=None):
        return next((i for i, key in enumerate(keys) if not self.exists(key)), len(keys))

    def get_stats(self):
        return None


class HostPool:
    """SGLang's pool of pages on the host: layer_first, K and V in one tensor."""

    page_size = 16

    def __init__(self, pages, dtype=torch.bfloat16):
        self.kv = torch.randn(2, 3, pages * self.page_size, 2, 32).to(dtype)

    def get_data_page(self, index, flat=True):
        page = self.kv[:, :, int(index) : int(index) + self.page_size]
        return page.flatten() if flat else page

    def get_dummy_flat_data_page(self):
        return torch.zeros((2, 3, self.page_size, 2, 32), dtype=self.kv.dtype).flatten()

    def set_from_flat_data_page(self, index, data_page):
        self.kv[:, :, int(index) : int(index) + self.page_size] = data_page.reshape(2, 3, self.page_size, 2, 32)


def a_config(path, **changes):
    own = {"tp_rank": 0, "tp_size": 2, "pp_rank": 0, "pp_size": 1, "model_name": "a/model", "is_mla_model": False}
    extra = {"path": str(path), **changes.pop("extra", {})}
    return types.SimpleNamespace(**{**own, **changes}, extra_config=extra)


@pytest.fixture
def backend(monkeypatch):
    names = ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.hicache_storage")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[names[-1]].HiCacheStorage = HiCacheStorage
    sglang.storage_class.cache_clear()
    yield sglang.SplitZipStorage
    sglang.storage_class.cache_clear()


def check_backend(backend, tmp_path):
    storage = backend(a_config(tmp_path), {})
    pool = HostPool(6)
    storage.register_mem_pool_host(pool)
    indices = torch.arange(4 * 16)
    keys = [f"hash{i}" for i in range(4)]
    pages = [pool.get_data_page(i * 16) for i in range(4)]
    assert storage.batch_exists(keys) == 0
    assert storage.batch_set(keys[:2], pages[:2])
    assert storage.batch_exists(keys) == 2
    assert storage.batch_set_v1(keys[2:], indices[32:]) == [True, True]
    assert storage.batch_exists([*keys, "another"]) == 4
    assert storage.store.written_bytes < 0.82 * storage.store.raw_bytes
    got = storage.batch_get([*keys, "another"], [pool.get_dummy_flat_data_page() for _ in range(5)])
    assert all(torch.equal(a, b) for a, b in zip(got[:4], pages, strict=True))
    assert got[4] is None
    other = HostPool(8)
    storage.register_mem_pool_host(other)
    assert storage.batch_get_v1([*keys, "another", keys[0]], torch.arange(6 * 16) + 32) == [True] * 4 + [False] * 2
    for i, page in enumerate(pages):
        assert torch.equal(other.get_data_page(32 + 16 * i), page)


def test_pages_in_and_out(backend, tmp_path):
    check_backend(backend, tmp_path)


def test_another_rank_or_model_has_other_pages(backend, tmp_path):
    page = torch.randn(1000).bfloat16()
    storage = backend(a_config(tmp_path))
    assert storage.set("k", page)
    for changes in ({"tp_rank": 1}, {"model_name": "b"}, {"pp_rank": 1}, {"tp_size": 4}):
        assert not backend(a_config(tmp_path, **changes)).exists("k")
    assert backend(a_config(tmp_path)).exists("k"), "and they outlive the process"
    mla = {"is_mla_model": True}
    assert backend(a_config(tmp_path, **mla)).set("m", page)
    assert backend(a_config(tmp_path, tp_rank=1, **mla)).exists("m"), "latent pages are the same on every rank"
    storage.clear()
    assert not storage.exists("k")
    assert backend(a_config(tmp_path, **mla)).exists("m")


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "another key's", "another shape"])
def test_damage_is_a_miss_and_is_removed(backend, tmp_path, how):
    storage = backend(a_config(tmp_path))
    page = torch.randn(5000).bfloat16()
    assert storage.set("k", page)
    path = storage.store.path("k")
    data = bytearray(path.read_bytes())
    target = torch.zeros_like(page)
    if how == "flip":
        data[3000] ^= 1
    elif how == "cut":
        del data[-5:]
    elif how == "empty":
        data.clear()
    elif how == "another key's":
        assert storage.set("other", page)
        data = storage.store.path("other").read_bytes()
    else:
        target = torch.zeros(5001, dtype=torch.bfloat16)
    path.write_bytes(data)
    assert storage.get("k", target) is None
    assert not storage.exists("k")
    assert storage.store.damaged == 1
    assert storage.set("k", page)
    assert torch.equal(storage.get("k", torch.zeros_like(page)), page)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float64, torch.float8_e4m3fn, torch.float32])
def test_pools_of_other_types(backend, tmp_path, dtype):
    storage = backend(a_config(tmp_path))
    page = torch.randint(0, 100, (777,)).to(dtype)
    assert storage.set("k", page)
    target = torch.zeros_like(page)
    assert storage.get("k", target) is target
    assert torch.equal(target.view(torch.uint8), page.view(torch.uint8))


def test_the_oldest_pages_go_first(backend, tmp_path):
    pages = {f"k{i}": torch.randn(4000).bfloat16() for i in range(6)}
    size = len(sglang.PageStore(tmp_path / "probe", "")._encoded("k", pages["k0"]))
    storage = backend(a_config(tmp_path, extra={"max_bytes": int(3.5 * size)}))
    for key in ("k0", "k1", "k2"):
        assert storage.set(key, pages[key])
    assert storage.get("k0", torch.zeros_like(pages["k0"])) is not None  # used again: k1 is the oldest now
    assert storage.set("k3", pages["k3"])
    assert [storage.exists(f"k{i}") for i in range(4)] == [True, False, True, True]
    again = backend(a_config(tmp_path, extra={"max_bytes": int(3.5 * size)}))
    assert again.set("k4", pages["k4"])
    assert [again.exists(f"k{i}") for i in range(5)] == [True, False, False, True, True]
    assert not again.set("large", torch.randn(40_000).bfloat16())
    with pytest.raises(SplitZipError, match="max_bytes"):
        backend(a_config(tmp_path, extra={"max_bytes": 0}))


def test_a_bank_and_what_cannot_be_stored(backend, tmp_path):
    page = torch.randn(4096).bfloat16()
    bank = tmp_path / "bank.json"
    CodebookBank.calibrate([("default", page)], code_bits=3).save(bank)
    storage = backend(a_config(tmp_path, extra={"bank": str(bank)}))
    assert storage.set("k", page)
    assert torch.equal(storage.get("k", torch.zeros_like(page)), page)
    assert not storage.set("k2", page.half()), "the bank is for another format"
    folder = next(k for k in map(str, range(10_000)) if not storage.store.path(k).parent.exists())
    storage.store.path(folder).parent.write_text("no folder")
    assert not storage.set(folder, page), "it cannot be written"
    with pytest.raises(SplitZipError, match="path"):
        backend(types.SimpleNamespace(extra_config={}))
    with pytest.raises(SplitZipError, match="target_location"):
        storage.get("k")


def test_keys_do_not_reach_outside(backend, tmp_path):
    storage = backend(a_config(tmp_path / "kv"))
    for key in ("../../etc/passwd", "/absolute", "a\0b", "ünï" * 100):
        assert storage.set(key, torch.ones(100))
    assert {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")} == {"kv"}


def test_without_sglang(monkeypatch):
    monkeypatch.setitem(sys.modules, "sglang", None)
    sglang.storage_class.cache_clear()
    with pytest.raises(DeviceUnavailable, match="pip install sglang"):
        _ = sglang.SplitZipStorage
    with pytest.raises(AttributeError):
        _ = sglang.Nothing


@pytest.mark.slow
def test_the_real_sglang(tmp_path):
    """Its factory makes the backend from the configuration, and the backend passes the same check."""
    probe = "import sglang.srt.mem_cache.storage.backend_factory"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("sglang cannot be imported here")
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

    sglang.storage_class.cache_clear()

    def make(config, _kwargs=None):
        real = HiCacheStorageConfig(
            tp_rank=config.tp_rank, tp_size=config.tp_size, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False, model_name="a/model",
            extra_config={
                **config.extra_config, "backend_name": "splitzip", "class_name": "SplitZipStorage",
                "module_path": "sprigs_splitzip.integrations.sglang",
            },
        )  # fmt: skip
        return StorageBackendFactory.create_backend("dynamic", real, None)

    check_backend(make, tmp_path)
    sglang.storage_class.cache_clear()
