"""Everything that needs a GPU, in one command: tests and timings of every package, or of those named.

    python tools/gpu_check.py DIR [NAME ...]

For a bare machine with Python, CUDA, torch and CuPy: the packages' `src` folders are put on the path, nothing has to
be installed. For each package it runs the tests marked `gpu` and `benchmarks/gpu_*.py`, whose `check()` yields rows
`{"name": str, "ok": bool, "figure": str}`; prints one table last and writes everything into DIR/gpu_check.json.

Exits 0 if all is well, 1 if something fails, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEST_TIMEOUT = 240

Row = dict[str, Any]


def device() -> tuple[str | None, str]:
    """Return the GPU's name, or None and the reason."""
    try:
        import cupy
    except ImportError as error:
        return None, f"CuPy cannot be imported: {error}"
    runtime = cupy.cuda.runtime
    try:
        if runtime.getDeviceCount() == 0:
            return None, "CuPy sees no CUDA device"
        return str(runtime.getDeviceProperties(0)["name"].decode()), ""
    except runtime.CUDARuntimeError as error:
        return None, f"CuPy sees no CUDA device: {error}"


def sources(root: Path) -> list[Path]:
    """Return every `src` folder, the hub's first."""
    return [root / "shared" / "src", *sorted(root.glob("packages/*/src"))]


def discover(root: Path, names: Sequence[str]) -> Iterator[tuple[str, Path | None, list[Path]]]:
    """Yield (package, tests folder if it has tests marked gpu, its timing scripts).

    Raises:
        ValueError: A name is no package.
    """
    packages = {path.name: path for path in sorted(root.glob("packages/*")) if (path / "pyproject.toml").is_file()}
    if unknown := sorted(set(names) - set(packages)):
        raise ValueError(f"no package {', '.join(unknown)}; there are {', '.join(packages)}")
    for name, path in packages.items():
        if names and name not in names:
            continue
        marked = any("mark.gpu" in test.read_text(encoding="utf-8") for test in path.glob("tests/*.py"))
        scripts = sorted(path.glob("benchmarks/gpu_*.py"))
        if marked or scripts:
            yield name, path / "tests" if marked else None, scripts


def run_tests(name: str, folder: Path, root: Path) -> Row:
    """Run a package's tests marked `gpu`."""
    paths = os.pathsep.join(map(str, sources(root)))
    # Where the hub is installed after all, pytest must not find its plugin a second time.
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # Nothing is installed here, so the hub's pytest plugin is named rather than found.
    command = [sys.executable, "-m", "pytest", "-p", "sprigs.testing.plugin", "-q", "-m", "gpu", "-W", "default"]
    command += ["-c", str(root / "pyproject.toml"), str(folder)]
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TEST_TIMEOUT, cwd=folder, check=False
        )
        output = done.stdout + done.stderr
        ok = done.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, ok = f"no end after {error.timeout:.0f} s", False
    summary = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    figure = summary[-1].strip("= ") if summary else output.strip().splitlines()[-1] if output.strip() else "no output"
    row = {"package": name, "name": "tests", "ok": ok, "figure": figure, "seconds": time.perf_counter() - began}
    return row if ok else {**row, "output": output[-8000:]}


def run_script(name: str, script: Path) -> Iterator[Row]:
    """Run a timing script's `check()`; an exception is a row that fails, after the rows before it."""
    began = time.perf_counter()
    try:
        spec = importlib.util.spec_from_file_location(f"gpu_check_{name}_{script.stem}", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for row in module.check():
            yield {"package": name, "seconds": time.perf_counter() - began, **row}
            began = time.perf_counter()
    except Exception as error:
        told = traceback.format_exc()
        yield {"package": name, "name": script.stem, "ok": False, "figure": repr(error), "output": told, "seconds": 0.0}


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out, failures marked."""
    cells = [[r["package"], r["name"], "ok" if r["ok"] else "FAILS", r["figure"]] for r in rows]
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(3)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in cells)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Run everything; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where gpu_check.json goes")
    parser.add_argument("names", nargs="*", help="packages; default: all that have GPU tests or timings")
    options = parser.parse_args(arguments)
    try:
        found = list(discover(root, options.names))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    gpu, problem = device()
    if gpu is None:
        told = ", ".join(name for name, _, _ in found) or "nothing"
        print(f"No GPU: {problem}. On a machine with one this would check {told}.")
        return 2
    sys.path[:0] = map(str, sources(root))
    options.directory.mkdir(parents=True, exist_ok=True)
    output = options.directory / "gpu_check.json"
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        print(f"{row['package']} {row['name']}: {'ok' if row['ok'] else 'FAILS'} {row['figure']}", flush=True)
        if "output" in row:
            print(row["output"], flush=True)
        # After every row, so that a run that is cut short keeps what it has.
        output.write_text(json.dumps({"device": gpu, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    for name, folder, scripts in found:
        if folder is not None:
            keep(run_tests(name, folder, root))
        for script in scripts:
            for row in run_script(name, script):
                keep(row)
    print(f"\n{gpu}\n{table(rows)}")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
