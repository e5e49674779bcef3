"""What `sprigs list` costs beside a bare interpreter, with 0, 20 and 40 plugins installed.

python benchmarks/bench_list.py [-o benchmarks/results/list.json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from sprigs.bench import compare

COUNTS = (0, 20, 40)


def shelf(root: Path, count: int) -> Path:
    """A folder of `count` distributions whose plugins refuse to be imported."""
    folder = root / f"shelf{count}"
    folder.mkdir()
    for number in range(count):
        name = f"method{number:02}"
        info = folder / f"dist_{name}-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.0\nSummary: does job {number}\n"
        )
        info.joinpath("entry_points.txt").write_text(f"[sprigs]\n{name} = plug_{name}\n")
        folder.joinpath(f"plug_{name}.py").write_text("raise SystemExit('imported')\n")
    return folder


def command(folder: Path, *arguments: str) -> Callable[[], int]:
    """A callable that runs Python with the folder on its path."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run() -> int:
        done = subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
        return done.returncode

    return run


def main() -> None:
    """Measure, print the table, and write the JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write the JSON here")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = {count: shelf(Path(scratch), count) for count in COUNTS}
        functions = {"python -c pass": command(folders[0], "-c", "pass")}
        for count, folder in folders.items():
            functions[f"sprigs list, {count} plugins"] = command(folder, "-m", "sprigs.cli", "list")
        result = compare(functions, rounds=options.rounds, packages=("click", "pluggy", "rich"))
    console = Console()
    console.print(result.table())
    bare = result.medians["python -c pass"]
    for name, seconds in result.medians.items():
        console.print(f"{name}: {seconds - bare:+.3f} s", highlight=False)
    rows = [
        [name, f"{1e3 * seconds:.0f}", "" if name == "python -c pass" else f"{1e3 * (seconds - bare):.0f}"]
        for name, seconds in result.medians.items()
    ]
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"table": {"columns": ["command", "ms", "more than a bare interpreter, ms"], "rows": rows}}
        options.output.write_text(json.dumps({**data, **result.to_dict()}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
