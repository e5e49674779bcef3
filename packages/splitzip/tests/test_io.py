"""safetensors files in and out."""

import concurrent.futures
import json
import os

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from sprigs_splitzip import Codebook, CodebookBank, FormatError, SplitZipError, io
from sprigs_splitzip.cli import main
from sprigs_splitzip.samples import shipped_cache

pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402


def tensors():
    generator = torch.Generator().manual_seed(0)
    cache = torch.from_numpy(shipped_cache().view(np.int16)).view(torch.bfloat16)
    return {
        "layers.0.k": cache[0, 0].clone(),
        "layers.0.v": cache[0, 1].clone(),
        "half": torch.randn(40, 50, generator=generator).half(),
        "single": torch.randn(300, 7, generator=generator),
        "fp8": torch.randn(100, 100, generator=generator).to(torch.float8_e5m2),
        "fp8k": torch.randn(10, 10, generator=generator).to(torch.float8_e4m3fn),
        "ids": torch.arange(12).reshape(3, 4),
        "mask": torch.tensor([True, False]),
        "bytes": torch.arange(200, dtype=torch.uint8),
        "double": torch.randn(5, generator=generator).double(),
        "empty": torch.empty(0, 3, dtype=torch.bfloat16),
        "scalar": torch.tensor(1.5, dtype=torch.bfloat16),
    }


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8) if a.numel() else a, b.contiguous().view(-1).view(torch.uint8) if b.numel() else b)  # fmt: skip  # noqa: E501


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.safetensors"
    save_file(tensors(), path, metadata={"format": "pt", "note": "ours"})
    return path


def test_a_file_comes_back_bit_for_bit(plain, tmp_path):
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"
    seen = []
    info = io.compress_file(plain, small, progress=seen.append)
    assert small.stat().st_size < 0.85 * plain.stat().st_size
    assert info.ratio > 1.2
    assert {"layers.0.k", "layers.0.v", "half", "single", "fp8"} == set(info.compressed)
    assert len(seen) == len(tensors())
    assert load_file(small).keys() == tensors().keys(), "any reader can open it"
    io.decompress_file(small, back)
    restored = load_file(back)
    for name, tensor in tensors().items():
        assert same(restored[name], tensor), name
    from safetensors import safe_open

    with safe_open(back, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "note": "ours"}


@pytest.mark.parametrize("like", ["numpy", "torch", "jax"])
def test_loading(plain, tmp_path, like):
    if like == "jax":
        pytest.importorskip("jax")
    small = tmp_path / "small.safetensors"
    io.compress_file(plain, small)
    names = ["layers.0.k", "half", "ids", "fp8"]
    for path in (plain, small):
        loaded = io.load_file(path, names, like=like)
        assert list(loaded) == names
        for name in names:
            expected = tensors()[name]
            if like == "torch":
                assert same(loaded[name], expected)
            else:
                array = np.asarray(loaded[name])
                size = expected.element_size()
                if name != "ids" or like == "numpy":  # jax keeps 32 bits of integers
                    assert np.array_equal(
                        array.view(f"u{size}").ravel(), expected.view(-1).view(torch.uint8).numpy().view(f"u{size}")
                    )
    with pytest.raises(SplitZipError, match="'nothing'"):
        io.load_file(small, ["nothing"])


def test_saving_arrays_of_any_library(tmp_path):
    jax = pytest.importorskip("jax")
    path = tmp_path / "x.safetensors"
    x = np.random.default_rng(0).normal(size=(50, 60)).astype(ml_dtypes.bfloat16)
    arrays = {"numpy": x, "torch": torch.randn(3000).half(), "jax": jax.numpy.asarray(x), "ints": np.arange(5)}
    io.save_file(arrays, path, metadata={"k": "v"})
    loaded = io.load_file(path)
    assert np.array_equal(loaded["numpy"].view(np.uint16), x.view(np.uint16))
    assert np.array_equal(loaded["jax"].view(np.uint16), x.view(np.uint16))
    assert np.array_equal(loaded["ints"], np.arange(5))
    assert io.inspect_file(path).compressed == ("jax", "numpy", "torch")
    with pytest.raises(SplitZipError, match="'bad'"):
        io.save_file({"bad": np.array(["text"])}, path)
    with pytest.raises(SplitZipError, match="own use"):
        io.save_file({}, path, metadata={"splitzip": "2"})
    assert np.array_equal(io.load_file(path, ["ints"])["ints"], np.arange(5)), "a failed save leaves the old file"


def test_a_bank_by_tensor_name(plain, tmp_path):
    small = tmp_path / "small.safetensors"
    bank = CodebookBank(
        {"layers.0.k": Codebook("bf16", range(121, 129), 3), "default": Codebook("bf16", range(113, 129))}
    )
    io.compress_file(plain, small, bank=bank)
    from sprigs_splitzip import inspect

    stored = load_file(small)
    assert inspect(stored["layers.0.k"].numpy()).frames[0].code_bits == 3
    assert inspect(stored["layers.0.v"].numpy()).frames[0].code_bits == 4
    assert same(io.load_file(small, ["half"], like="torch")["half"], tensors()["half"])


def test_damage_is_named_and_nothing_is_written(plain, tmp_path):
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"
    io.compress_file(plain, small)
    assert io.verify_file(small).compressed
    data = bytearray(small.read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin = json.loads(data[8 : 8 + length])["layers.0.v"]["data_offsets"][0]
    data[8 + length + begin + 5000] ^= 1
    small.write_bytes(data)
    for act in (lambda: io.verify_file(small), lambda: io.decompress_file(small, back), lambda: io.load_file(small)):
        with pytest.raises(SplitZipError, match=r"'layers\.0\.v'"):
            act()
    assert not back.exists()
    assert sorted(os.listdir(tmp_path)) == ["plain.safetensors", "small.safetensors"]


@pytest.mark.parametrize("text", [b"", b"x" * 100, (10**15).to_bytes(8, "little") + b"{}", b"\x02\0\0\0\0\0\0\0[]"])
def test_files_that_are_none(tmp_path, text):
    path = tmp_path / "x.safetensors"
    path.write_bytes(text)
    for act in (io.load_file, io.inspect_file, io.verify_file):
        with pytest.raises(FormatError):
            act(path)


def test_hostile_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    for metadata in (
        {"splitzip": "2", "splitzip_tensors": "[]"},
        {"splitzip": "1"},
        {"splitzip": "1", "splitzip_tensors": "{"},
        {"splitzip": "1", "splitzip_tensors": "[1]"},
        {"splitzip": "1", "splitzip_tensors": '["missing"]'},
        {"splitzip": "1", "splitzip_tensors": '["ids"]'},
        {"splitzip": "1", "splitzip_tensors": '["bytes"]'},
    ):
        save_file({"ids": torch.arange(4), "bytes": torch.zeros(300, dtype=torch.uint8)}, path, metadata=metadata)
        with pytest.raises(SplitZipError):
            io.load_file(path)


def test_refusals(plain, tmp_path):
    small = tmp_path / "small.safetensors"
    io.compress_file(plain, small)
    with pytest.raises(SplitZipError, match="already"):
        io.compress_file(small, tmp_path / "smaller.safetensors")
    with pytest.raises(SplitZipError, match="not compressed"):
        io.decompress_file(plain, tmp_path / "x.safetensors")
    with pytest.raises(SplitZipError, match="same file"):
        io.compress_file(plain, plain)


@pytest.mark.parametrize("kind", [None, concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor])
def test_several_files_on_an_executor(tmp_path, kind):
    pairs = []
    for k in range(3):
        source = tmp_path / f"{k}.safetensors"
        save_file({"x": torch.randn(5000, generator=torch.Generator().manual_seed(k))}, source)
        pairs.append((source, tmp_path / f"{k}.small.safetensors"))
    if kind is None:
        infos = io.compress_files(pairs)
    else:
        import multiprocessing

        options = {"mp_context": multiprocessing.get_context("spawn")} if "Process" in kind.__name__ else {}
        with kind(2, **options) as executor:
            infos = io.compress_files(pairs, executor=executor)
    assert [info.compressed for info in infos] == [("x",)] * 3
    for source, target in pairs:
        assert torch.equal(io.load_file(target, like="torch")["x"], load_file(source)["x"])


def test_commands(plain, tmp_path):
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"

    def run(*arguments):
        return CliRunner().invoke(main, [str(a) for a in arguments])

    done = run("compress", plain, "-o", small)
    assert done.exit_code == 0, done.output
    assert "bit-exact" in done.output
    assert "verified" in run("verify", small).output
    told = json.loads(run("inspect", small, "--json").output)
    assert told["tensors"]["layers.0.k"]["dtype"] == "bf16"
    assert run("decompress", small, "-o", back).exit_code == 0
    assert same(load_file(back)["half"], tensors()["half"])
    done = run("compress", small, "-o", back)
    assert done.exit_code == 1
    assert "already" in done.output
    data = bytearray(small.read_bytes())
    data[-3] ^= 1
    small.write_bytes(data)
    assert run("verify", small).exit_code == 1
