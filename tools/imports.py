"""Check that imports run one way: packages to the hub, methods to the support packages, never to each other.

    python tools/imports.py

Prints each forbidden import with file and line, and exits 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The only imports between packages; `sprigs_emulator` is for tests, in every package.
SUPPORT = {
    "mpdc": {"splat"},
    "spheribed": {"splat"},
    "invisisplat": {"splat"},
    "spikeinit": {"spikes"},
    "spikesft": {"spikes"},
    "spiknerf": {"spikes"},
    "spire": {"spikes"},
    "spikestag": {"spikes"},
}
PREFIX = "sprigs_"


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every absolute import in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


def violations(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each import that the architecture forbids."""
    owners = {"sprigs": root / "shared"}
    owners |= {path.name: path for path in sorted(root.glob("packages/*")) if path.is_dir()}
    for owner, folder in owners.items():
        for path in sorted(folder.rglob("*.py")):
            part = path.relative_to(folder).parts[0]
            if part not in ("src", "tests", "benchmarks"):
                continue
            allowed = {owner, *SUPPORT.get(owner, ())} | ({"emulator"} if part == "tests" else set())
            for line, module in imported_modules(path):
                top = module.split(".")[0]
                if top.startswith(PREFIX) and top.removeprefix(PREFIX) not in allowed:
                    where = path.relative_to(root)
                    yield f"{where}:{line}: {owner} may not import {top}: only the hub and its support packages"


def main() -> int:
    """Print the violations; return the exit code."""
    found = list(violations())
    print("\n".join(found) or "imports run one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
