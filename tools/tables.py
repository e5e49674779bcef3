"""Write the generated tables into the READMEs, or check that they are up to date.

    python tools/tables.py            # rewrite them
    python tools/tables.py --check    # exit 1 if one is stale

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. In the root README, `methods` lists the packages from
their `pyproject.toml`. In a package's README, `claims` shows `benchmarks/results/claims.json` and any other NAME the
`table` (a mapping with `columns` and `rows`) of `benchmarks/results/NAME.json`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; cells that read as numbers are aligned right."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    numeric = [
        bool(cells) and all(re.fullmatch(r"|[-+]?[\d.,]+ ?(x|%|s)?", row[i]) for row in cells)
        for i in range(len(columns))
    ]
    lines = [list(columns), ["---:" if right else "---" for right in numeric], *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def methods_table(root: Path) -> str:
    """List every package under `packages/`."""
    rows = []
    for path in sorted(root.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        paper = project.get("urls", {}).get("Paper")
        rows.append(
            [
                f"[`{project['name']}`](packages/{path.parent.name}/README.md)",
                project["description"],
                f"[paper]({paper})" if paper else "",
            ]
        )
    return markdown(("install", "what it does", ""), rows)


def claims_table(results: list[dict[str, Any]]) -> str:
    """Show the results of `sprigs claims NAME -o FILE`."""
    verdict = {True: "holds", False: "**does not hold**", None: "not run"}
    rows = [
        [
            result["statement"],
            result["paper"],
            result["here"],
            "; ".join(
                text for text in (result["measured"], result["baseline"] and f"against {result['baseline']}") if text
            ),
            verdict[result["holds"]] + (f": {result['note']}" if result["note"] else ""),
            f"`{result['command']}`",
        ]
        for result in results
    ]
    return markdown(("claim", "paper", "run here", "measured", "", "command"), rows)


def render(name: str, readme: Path, root: Path) -> str:
    """Return the table called `name` for a README.

    Raises:
        SystemExit: There is no such table.
    """
    if readme.parent == root:
        if name == "methods":
            return methods_table(root)
        raise SystemExit(f"{readme}: the root README has no table {name!r}")
    source = readme.parent / "benchmarks" / "results" / f"{name}.json"
    if not source.is_file():
        raise SystemExit(f"{readme}: table {name!r} needs {source.relative_to(root)}; run the benchmark that writes it")
    data = json.loads(source.read_text(encoding="utf-8"))
    if name == "claims":
        return claims_table(data)
    return markdown(data["table"]["columns"], data["table"]["rows"])


def updated(readme: Path, root: Path = ROOT) -> str:
    """Return a README's text with its tables made anew."""
    text = readme.read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: match[1] + render(match[2], readme, root) + match[3], text)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Rewrite or check every README; return the exit code."""
    stale = []
    for readme in sorted([root / "README.md", *root.glob("shared/README.md"), *root.glob("packages/*/README.md")]):
        text = updated(readme, root)
        if text != readme.read_text(encoding="utf-8"):
            stale.append(str(readme.relative_to(root)))
            if "--check" not in arguments:
                readme.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"stale tables in {', '.join(stale)}: run python tools/tables.py")
        return 1
    print(f"{len(stale)} README(s) rewritten" if stale else "tables are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
