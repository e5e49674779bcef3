"""Adapters: LMCache against stand-ins with its signatures (0.5.6), transformers against the real thing where it is."""

import ctypes
import math
import sys
import types

import numpy as np
import pytest

from sprigs_splitzip import ChecksumError, CodebookBank, DeviceUnavailable, LayoutMismatch, SplitZipError
from sprigs_splitzip.integrations import lmcache
from sprigs_splitzip.integrations import transformers as hf

torch = pytest.importorskip("torch")


class MemoryObj:
    """What the adapter uses of LMCache's `TensorMemoryObj`: raw bytes, seen as one tensor for each group."""

    def __init__(self, shapes, dtypes):
        self.shapes, self.dtypes = shapes, dtypes
        self.sizes = [
            math.prod(s) * torch.empty(0, dtype=d).element_size() for s, d in zip(shapes, dtypes, strict=True)
        ]
        self.raw_data = torch.zeros(sum(self.sizes), dtype=torch.uint8)
        self.used = None

    def get_shapes(self):
        return self.shapes

    def get_tensor(self, index):
        begin = sum(self.sizes[:index])
        return self.raw_data[begin : begin + self.sizes[index]].view(self.dtypes[index]).view(self.shapes[index])

    def set_used_size(self, n):
        self.used = n

    @property
    def byte_array(self):
        n = self.raw_data.numel() if self.used is None else self.used
        return memoryview((ctypes.c_ubyte * n).from_address(self.raw_data.data_ptr()))


def a_memory_object():
    """Two groups, as a hybrid model has: KV of two layers, and a state of another type."""
    memory = MemoryObj([torch.Size((2, 2, 64, 3, 64)), torch.Size((5, 7))], [torch.bfloat16, torch.float32])
    for index in range(2):
        memory.get_tensor(index).copy_(torch.randn(memory.shapes[index]).to(memory.dtypes[index]))
    return memory


def buffer_for(memory, spare=0):
    layout = types.SimpleNamespace(shapes=memory.shapes, dtypes=memory.dtypes)
    return MemoryObj([torch.Size((lmcache.estimate(layout) + spare,))], [torch.uint8])


@pytest.mark.parametrize("narrowed", [True, False])
def test_lmcache_round_trip(narrowed):
    memory = a_memory_object()
    buffer = buffer_for(memory)
    written = lmcache.serialize(memory, buffer)
    assert written < 0.8 * memory.raw_data.numel()
    if narrowed:
        buffer.set_used_size(written)
    restored = MemoryObj(memory.shapes, memory.dtypes)
    lmcache.deserialize(buffer, restored)
    assert torch.equal(restored.raw_data, memory.raw_data)


def test_lmcache_estimate_is_a_bound_for_any_contents():
    memory = a_memory_object()
    memory.raw_data.random_(0, 256)
    buffer = buffer_for(memory)
    assert lmcache.serialize(memory, buffer) == buffer.raw_data.numel()
    small = MemoryObj([torch.Size((1000,))], [torch.uint8])
    with pytest.raises(SplitZipError, match="needed"):
        lmcache.serialize(memory, small)


def test_lmcache_damage_is_an_error():
    memory = a_memory_object()
    buffer = buffer_for(memory)
    written = lmcache.serialize(memory, buffer)
    buffer.set_used_size(written)
    buffer.raw_data[5000] ^= 1
    with pytest.raises(ChecksumError):
        lmcache.deserialize(buffer, MemoryObj(memory.shapes, memory.dtypes))
    buffer.raw_data[5000] ^= 1
    buffer.set_used_size(written - 40)
    with pytest.raises(SplitZipError):
        lmcache.deserialize(buffer, MemoryObj(memory.shapes, memory.dtypes))
    buffer.set_used_size(written)
    with pytest.raises(LayoutMismatch):
        lmcache.deserialize(buffer, MemoryObj([torch.Size((2, 2, 64, 3, 64)), torch.Size((7, 5))], memory.dtypes))
    buffer.set_used_size(0)
    with pytest.raises(LayoutMismatch, match="fewer"):
        lmcache.deserialize(buffer, MemoryObj(memory.shapes, memory.dtypes))


@pytest.fixture
def host(monkeypatch):
    """The module `lmcache.v1.distributed.serde`, as far as the adapter goes."""
    registered = {}

    class AsyncSerdeProcessor:
        def __init__(self, serializer, deserializer, max_workers):
            self.serializer, self.deserializer, self.max_workers = serializer, deserializer, max_workers

    def register_serde_factory(name, factory):
        if name in registered:
            raise ValueError(f"Serde type already registered: {name!r}")
        registered[name] = factory

    serde = types.ModuleType("lmcache.v1.distributed.serde")
    serde.Serializer = type("Serializer", (), {})
    serde.Deserializer = type("Deserializer", (), {})
    serde.AsyncSerdeProcessor = AsyncSerdeProcessor
    serde.register_serde_factory = register_serde_factory
    distributed = types.ModuleType("lmcache.v1.distributed")
    distributed.serde = serde
    for name, module in {
        "lmcache": types.ModuleType("lmcache"),
        "lmcache.v1": types.ModuleType("lmcache.v1"),
        "lmcache.v1.distributed": distributed,
        "lmcache.v1.distributed.serde": serde,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return registered


def test_lmcache_registers_once_and_makes_a_processor(host, tmp_path):
    assert lmcache.register()
    assert not lmcache.register()
    memory = a_memory_object()
    bank = tmp_path / "bank.json"
    CodebookBank.calibrate([("default", memory.get_tensor(0))], code_bits=3).save(bank)
    for options in ({}, {"max_workers": 3}):
        processor = host["splitzip"](options)
        assert processor.max_workers == options.get("max_workers", 1)
        buffer = buffer_for(memory)
        layout = types.SimpleNamespace(shapes=memory.shapes, dtypes=memory.dtypes)
        assert processor.serializer.estimate_serialized_size(layout) == buffer.raw_data.numel()
        buffer.set_used_size(processor.serializer.serialize(memory, buffer, key=None))
        restored = MemoryObj(memory.shapes, memory.dtypes)
        processor.deserializer.deserialize(buffer, restored, key=None)
        assert torch.equal(restored.raw_data, memory.raw_data)
    # A bank of BF16 codebooks serves caches that are BF16 throughout.
    single = MemoryObj(memory.shapes[:1], memory.dtypes[:1])
    single.get_tensor(0).copy_(memory.get_tensor(0))
    processor = host["splitzip"]({"bank": str(bank)})
    buffer = buffer_for(single)
    buffer.set_used_size(processor.serializer.serialize(single, buffer, key=None))
    restored = MemoryObj(single.shapes, single.dtypes)
    processor.deserializer.deserialize(buffer, restored, key=None)
    assert torch.equal(restored.raw_data, single.raw_data)


def test_lmcache_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "lmcache", None)
    with pytest.raises(DeviceUnavailable, match="pip install lmcache"):
        lmcache.register()


class Cache:
    """What the adapter uses of `transformers.DynamicCache`."""

    def __init__(self):
        self.layers = []

    def update(self, keys, values, layer):
        assert layer == len(self.layers)
        self.layers.append(types.SimpleNamespace(keys=keys, values=values))


def a_cache(layers=3):
    cache = Cache()
    for layer in range(layers):
        cache.update(torch.randn(1, 2, 40, 16).bfloat16(), torch.randn(1, 2, 40, 16).bfloat16(), layer)
    return cache


def same(a, b):
    pairs = zip(hf.iter_parts(a), hf.iter_parts(b), strict=True)
    return all(k == n and torch.equal(x.view(torch.int16), y.view(torch.int16)) for (k, x), (n, y) in pairs)


def test_transformers_cache_round_trip():
    cache = a_cache()
    data = hf.compress_cache(cache, tag=3)
    assert len(data) < 3 * 2 * 2 * 40 * 16 * 2
    restored = hf.decompress_cache(data, Cache(), expected_tag=3)
    assert same(cache, restored)
    bank = CodebookBank.calibrate(hf.iter_parts(cache), code_bits=3)
    assert same(cache, hf.decompress_cache(hf.compress_cache(cache, bank), Cache()))


def test_transformers_cache_damaged():
    data = hf.compress_cache(a_cache(2))
    for size in (0, 5, 12, 15, 20, 300, len(data) - 1):
        with pytest.raises(SplitZipError):
            hf.decompress_cache(data[:size], Cache())
    for at in (0, 9, 13, 100, 700, len(data) - 30):
        bad = bytearray(data)
        bad[at] ^= 0x81
        target = Cache()
        with pytest.raises(SplitZipError):
            hf.decompress_cache(bad, target)
        assert target.layers == [], "nothing may be put into the cache"
    with pytest.raises(SplitZipError, match="follow"):
        hf.decompress_cache(data + b"x", Cache())
    with pytest.raises(SplitZipError):
        hf.decompress_cache(data, Cache(), max_bytes=5000)
    with pytest.raises(LayoutMismatch):
        hf.decompress_cache(data, Cache(), expected_tag=1)
    for wrong in (object(), Cache(), types.SimpleNamespace(layers=[types.SimpleNamespace(keys=None, values=None)])):
        with pytest.raises(SplitZipError):
            hf.compress_cache(wrong)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # transformers warns of its own plans
def test_the_real_transformers_cache(monkeypatch):
    """A small model goes on from a restored cache as from its own: the same logits, bit for bit."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = transformers.Qwen2ForCausalLM(config).bfloat16().eval()
    ids = torch.randint(0, 64, (1, 100))
    with torch.inference_mode():
        output = model(ids, use_cache=True)
        cache = output.get("cache") or output.past_key_values
        data = hf.compress_cache(cache)
        restored = hf.decompress_cache(data)
        assert isinstance(restored, transformers.DynamicCache)
        assert same(cache, restored)
        following = torch.randint(0, 64, (1, 1))
        name = "cache" if "cache" in output else "past_key_values"
        mine = model(following, use_cache=True, **{name: restored}).logits
        own = model(following, use_cache=True, **{name: cache}).logits
    assert torch.equal(mine, own)
    assert np.isfinite(own.float().numpy()).all()
