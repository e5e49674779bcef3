"""The GPU check: what it finds, what it says without a GPU, and its table, on fake timings."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gpu_check  # noqa: E402


@pytest.fixture
def repository(tmp_path):
    for name in ("fast", "plain", "broken"):
        (tmp_path / "packages" / name / "tests").mkdir(parents=True)
        (tmp_path / "packages" / name / "benchmarks").mkdir()
        (tmp_path / "packages" / name / "pyproject.toml").write_text("")
        (tmp_path / "packages" / name / "src").mkdir()
    (tmp_path / "shared" / "src").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    fast = tmp_path / "packages" / "fast"
    (fast / "tests" / "test_a.py").write_text("import pytest\n@pytest.mark.gpu\ndef test_a(): pass\n")
    (fast / "benchmarks" / "gpu_speed.py").write_text(
        "def check():\n"
        "    yield {'name': 'bytes', 'ok': True, 'figure': '12 cases'}\n"
        "    yield {'name': 'encode', 'ok': True, 'figure': '1900 GB/s'}\n"
    )
    (tmp_path / "packages" / "broken" / "benchmarks" / "gpu_x.py").write_text(
        "def check():\n"
        "    yield {'name': 'first', 'ok': True, 'figure': '1'}\n"
        "    raise RuntimeError('no such kernel')\n"
    )
    return tmp_path


def test_discovery(repository):
    found = {
        name: (tests is not None, [s.name for s in scripts])
        for name, tests, scripts in gpu_check.discover(repository, [])
    }
    assert found == {"broken": (False, ["gpu_x.py"]), "fast": (True, ["gpu_speed.py"])}
    assert [name for name, _, _ in gpu_check.discover(repository, ["fast"])] == ["fast"]
    with pytest.raises(ValueError, match="no package slow"):
        list(gpu_check.discover(repository, ["slow"]))


def test_the_real_tree_has_something_to_check():
    assert "splitzip" in [name for name, _, _ in gpu_check.discover(ROOT, [])]


def test_without_a_gpu_it_says_so_and_exits_2(repository, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "device", lambda: (None, "CuPy sees no CUDA device"))
    assert gpu_check.main([str(repository / "out")], repository) == 2
    printed = capsys.readouterr().out
    assert "No GPU: CuPy sees no CUDA device" in printed
    assert "broken, fast" in printed
    assert not (repository / "out").exists()


def test_cupy_missing_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    name, reason = gpu_check.device()
    assert name is None
    assert "CuPy" in reason


def test_rows_table_and_json(repository, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "device", lambda: ("Fake GPU", ""))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(
        gpu_check,
        "run_tests",
        lambda name, folder, root: {"package": name, "name": "tests", "ok": True, "figure": "1 passed", "seconds": 1.0},
    )
    assert gpu_check.main([str(repository / "out")], repository) == 1
    last = capsys.readouterr().out.split("Fake GPU\n")[1].splitlines()
    assert [line.split() for line in last] == [
        ["broken", "first", "ok", "1"],
        ["broken", "gpu_x", "FAILS", "RuntimeError('no", "such", "kernel')"],
        ["fast", "tests", "ok", "1", "passed"],
        ["fast", "bytes", "ok", "12", "cases"],
        ["fast", "encode", "ok", "1900", "GB/s"],
    ]
    written = json.loads((repository / "out" / "gpu_check.json").read_text())
    assert written["device"] == "Fake GPU"
    assert len(written["rows"]) == 5
    assert "no such kernel" in written["rows"][1]["output"]
    assert gpu_check.main([str(repository / "out"), "fast"], repository) == 0


def test_running_the_marked_tests(tmp_path):
    """With this repository's own hub on the path, and a test that needs no GPU under the marker."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_marked.py").write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_yes(): pass\ndef test_other(): raise SystemExit\n"
    )
    row = gpu_check.run_tests("some", folder, ROOT)
    assert row["ok"], row
    assert "1 passed, 1 deselected" in row["figure"]
    (folder / "test_bad.py").write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_no(): raise ValueError('wrong bytes')\n"
    )
    row = gpu_check.run_tests("some", folder, ROOT)
    assert not row["ok"]
    assert "wrong bytes" in row["output"]
