"""The package as a plugin, its claims, demo and commands."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sprigs
from sprigs.testing import checks
from sprigs_splitzip import Codebook, CodebookBank, Codec, compress
from sprigs_splitzip.cli import main
from sprigs_splitzip.samples import shipped_bank, shipped_cache

# blosc2 imports torch where it finds it, and torch warns of its own plans.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.mark.parametrize(("name", "check"), checks("splitzip"))
def test_contract(name, check):
    check()


def test_shipped_data():
    cache = shipped_cache()
    assert cache.shape == (30, 2, 64, 3, 64)
    assert cache.nbytes <= 1.6e6
    values = (cache.astype(np.uint32) << 16).view(np.float32)
    assert np.isfinite(values).all()
    assert values.std() > 0.1
    for bits in (3, 4):
        bank = shipped_bank(bits)
        assert len(bank) == 61
        assert {book.code_bits for book in bank.values()} == {bits}
    assert Codec(shipped_bank(4)["default"]).encode(cache, dtype="bf16").ratio > 1.33


def test_fast_claims():
    """Those on data that is always there; the speed claim belongs to benchmarks."""
    wanted = ("bitwise", "redundancy", "generalises", "ratio", "fp8", "gpu-rate")
    results = {r.claim.id: r for r in sprigs.run_claims("splitzip", fast=True, only=wanted)}
    for claim in ("bitwise", "redundancy", "generalises", "ratio", "fp8"):
        assert results[claim].outcome.holds, results[claim].outcome
    assert results["gpu-rate"].outcome.holds is None


def test_demo(tmp_path):
    demo = sprigs.registry().resolve("splitzip", sprigs.get("splitzip").demo)
    picture = tmp_path / "out" / "demo.png"
    done = CliRunner().invoke(demo, ["-o", str(picture), "--rounds", "3"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    for text in ("Bit-exact", "Ratio by layer", "Speed", "Does it pay", "send raw"):
        assert text in done.output


def test_demo_without_the_extras_names_them(tmp_path, monkeypatch):
    monkeypatch.setattr("sprigs_splitzip.demo.has_numba", lambda: False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("sprigs_splitzip.demo.candidates", lambda codebook, threads: iter(()))
    demo = sprigs.registry().resolve("splitzip", sprigs.get("splitzip").demo)
    done = CliRunner().invoke(demo, ["-o", str(tmp_path / "demo.png"), "--rounds", "3"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for extra in ("fast", "peers", "plot"):
        assert f"sprigs-splitzip[{extra}]" in done.output


def test_calibrate_command(tmp_path):
    np.save(tmp_path / "kv.npy", shipped_cache())
    bank = tmp_path / "bank.json"
    done = CliRunner().invoke(main, ["calibrate", str(tmp_path / "kv.npy"), "-o", str(bank), "--code-bits", "3"])
    assert done.exit_code == 0, done.output
    assert len(CodebookBank.load(bank)) == 61
    np.save(tmp_path / "bad.npy", np.zeros(3))
    done = CliRunner().invoke(main, ["calibrate", str(tmp_path / "bad.npy"), "-o", str(bank)])
    assert done.exit_code == 1
    assert "uint16" in done.output


def test_inspect_command(tmp_path):
    path = tmp_path / "x.splz"
    path.write_bytes(compress(np.ones((100, 1000), np.float16), tag=5, frame_elems=60_000))
    done = CliRunner().invoke(main, ["inspect", str(path), "--json"])
    summary = json.loads(done.output)
    assert (summary["dtype"], summary["shape"], summary["frames"], summary["tag"]) == ("fp16", [100, 1000], 2, 5)
    path.write_bytes(b"not a frame at all" * 20)
    done = CliRunner().invoke(main, ["inspect", str(path)])
    assert done.exit_code == 1
    assert "SPLZ" in done.output


def test_plan_command():
    paper = ["plan", "--ratio", "1.324", "--encode", "613.3GB/s", "--decode", "2181.8GB/s"]
    done = CliRunner().invoke(main, [*paper, "--link", "400Gb/s", "--link", "450GB/s", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["bytes"] == 8 * 2**30, "Qwen3-32B, 32k tokens"
    assert [row["answer"] for row in told["rows"]] == ["compress", "compress, overlapped"]
    serial = told["rows"][0]["raw_seconds"] / told["rows"][0]["serial_seconds"]
    assert serial == pytest.approx(1.163, abs=1e-3)
    done = CliRunner().invoke(main, ["plan", "--link", "1GB/s", "--tokens", "1024"])
    assert done.exit_code == 0, done.output
    assert "overlapped" in done.output
    for bad in (["--link", "fast"], ["--link", "1GB/s", "--ratio", "1.3"]):
        done = CliRunner().invoke(main, ["plan", *bad])
        assert done.exit_code == 1
        assert done.output.startswith("Error")


def readme_examples():
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL)


def test_readme_examples_print_what_the_readme_shows():
    examples = readme_examples()
    assert len(examples) == 2
    for code, output in examples:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == output


def test_random_states_do_not_leak():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    Codebook.from_samples([np.ones(10, np.float32)])
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
