"""Write a new method package that passes lint, types, tests, build and the contract suite at once.

    python tools/new_method.py NAME --description "What job it does" --paper https://...

The package goes to `packages/NAME`; nothing else has to be edited. It is a working package around a small function:
replace that with the method, file by file.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path(__file__).resolve().parent / "template"
PLACEHOLDER = "sprigling"

# Names that `sprigs NAME` already means something else by.
TAKEN = {"list", "info", "demo", "claims", "bench", "doctor"}


def new_method(name: str, folder: Path, description: str, paper: str) -> Path:
    """Write the package into `folder / name` and return that path.

    Args:
        name: Lower-case letters and digits, beginning with a letter.
        folder: Where packages live.
        description: One line, the job the package does.
        paper: Address of the paper.

    Raises:
        ValueError: The name, description or address cannot be used.
        FileExistsError: There is something at `folder / name`.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or name in TAKEN | {PLACEHOLDER}:
        raise ValueError(f"a method's name is lower-case letters and digits and no command of sprigs; got {name!r}")
    if not description.strip() or re.search(r'[\n"\\]', description):
        raise ValueError("the description is one line without quotes or backslashes")
    if not re.fullmatch(r"https?://[^\s\"\\]+", paper):
        raise ValueError(f"the paper's address begins with https://; got {paper!r}")
    target = folder / name
    target.mkdir(parents=True)
    words = {PLACEHOLDER: name, "DESCRIPTION": description.strip().rstrip("."), "PAPER": paper}
    for source in sorted(TEMPLATE.rglob("*")):
        relative = source.relative_to(TEMPLATE)
        if source.is_dir() or "__pycache__" in relative.parts or ".hypothesis" in relative.parts:
            continue
        written = target / str(relative).replace(PLACEHOLDER, name)
        written.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8")
        if source.name != "LICENSE":
            # One pass: what is put in is never looked at again.
            text = re.sub("|".join(words), lambda match: words[match[0]], text)
        written.write_text(text, encoding="utf-8")
    return target


def main(arguments: Sequence[str]) -> int:
    """Write the package; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="lower-case letters and digits")
    parser.add_argument("--description", required=True, help="one line, the job it does")
    parser.add_argument("--paper", required=True, help="address of the paper")
    parser.add_argument("--into", type=Path, default=ROOT / "packages", help="default: packages/")
    options = parser.parse_args(arguments)
    try:
        target = new_method(options.name, options.into, options.description, options.paper)
    except (ValueError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sessions = f"lint types 'tests({options.name})' 'build({options.name})'"
    print(f"{target}: now run\n  python tools/tables.py\n  nox -s {sessions}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
