"""Generated tables: made from metadata and results, and found stale."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tables import main, markdown

PYPROJECT = """
[project]
name = "sprigs-herb"
description = "Counts leaves"
[project.urls]
Paper = "https://example.org/herb"
"""


@pytest.fixture
def repository(tmp_path):
    package = tmp_path / "packages" / "herb"
    results = package / "benchmarks" / "results"
    results.mkdir(parents=True)
    (package / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "README.md").write_text("# x\n<!-- table: methods -->\nold\n<!-- end -->\nrest\n")
    (package / "README.md").write_text(
        "<!-- table: claims -->\n<!-- end -->\ntext\n<!-- table: speed -->\n<!-- end -->\n"
    )
    claim = {
        "id": "a",
        "statement": "It | holds",
        "paper": "2x",
        "here": "small",
        "bar": "1x",
        "measured": "3x",
        "baseline": "loop",
        "holds": True,
        "note": "",
        "seconds": 1.0,
        "command": "sprigs claims herb --only a",
    }
    failing = {**claim, "id": "b", "holds": False, "note": "too slow"}
    (results / "claims.json").write_text(json.dumps([claim, failing]))
    (results / "speed.json").write_text(
        json.dumps({"table": {"columns": ["n", "what"], "rows": [[1, "x"], [20, "y"]]}})
    )
    return tmp_path


def test_stale_then_written_then_fresh(repository, capsys):
    assert main(["--check"], repository) == 1
    assert "README.md" in capsys.readouterr().out
    assert main([], repository) == 0
    assert main(["--check"], repository) == 0
    root = (repository / "README.md").read_text()
    assert "| [`sprigs-herb`](packages/herb/README.md) | Counts leaves | [paper](https://example.org/herb) |" in root
    assert root.endswith("rest\n")
    assert "old" not in root
    readme = (repository / "packages" / "herb" / "README.md").read_text()
    assert "It \\| holds" in readme
    assert "**does not hold**: too slow" in readme
    assert "| ---: | --- |" in readme
    (repository / "packages" / "herb" / "benchmarks" / "results" / "speed.json").write_text(
        json.dumps({"table": {"columns": ["n", "what"], "rows": [[2, "x"]]}})
    )
    assert main(["--check"], repository) == 1


def test_a_table_without_results_is_an_error(repository):
    (repository / "packages" / "herb" / "benchmarks" / "results" / "speed.json").unlink()
    with pytest.raises(SystemExit, match="run the benchmark"):
        main([], repository)


def test_markdown_aligns_numbers():
    assert markdown(["a", "b"], [["1.5", "1.3x"], ["2", "b"]]).splitlines()[1] == "| ---: | --- |"
