"""Compile every CUDA kernel in the tree for every architecture, without a GPU, and report what it takes.

    python tools/kernels.py [-o FILE.json] [NAME ...]

For each `.cu` file under `packages/*/src` (or the named packages'), each `// variant: LABEL: OPTIONS` line in it (one
plain variant if there is none) and each kernel: registers, spills and shared memory, the size of the file's cubin, the
number of instructions where nvdisasm is installed, and the figures of the kernel's comment,
`// KERNEL: moves B bytes and does N operations per element, in at most I instructions`; the ceiling is for sm_90.
Where variants differ, `// at most, LABEL: KERNEL I, KERNEL I` takes the place of I for the variant LABEL.

Exits 1 if a kernel does not compile, spills, keeps an array in local memory, or exceeds its ceiling, 2 if NVRTC
(through cuda-core) is not installed.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sprigs.kernels import signatures

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

_VARIANT = re.compile(r"^//\s*variant:\s*(.+?):\s*(-.*)$", re.MULTILINE)
_CEILING = re.compile(r"^//\s*at most, (.+?):\s*(\w+ \d+(?:, \w+ \d+)*)\s*$", re.MULTILINE)
_COST = re.compile(
    r"^//\s*(\w+): moves ([\d.]+) bytes and does ([\d.]+) operations per element(?:, in at most (\d+) instructions)?",
    re.MULTILINE,
)
CEILING_ARCHITECTURE = "sm_90"
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass
class Report:
    """One kernel of one variant of one file, over the architectures."""

    package: str
    file: str
    variant: str
    kernel: str
    bytes_per_element: float | None
    operations_per_element: float | None
    ceiling: int | None
    registers: dict[str, int] = field(default_factory=dict)
    spilled_bytes: dict[str, int] = field(default_factory=dict)
    local_bytes: dict[str, int] = field(default_factory=dict)
    shared_bytes: dict[str, int] = field(default_factory=dict)
    cubin_bytes: dict[str, int] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)


def variants(source: str) -> dict[str, list[str]]:
    """Return label -> options of every variant that a file names."""
    return {label: options.split() for label, options in _VARIANT.findall(source)} or {"": []}


def costs(source: str) -> dict[str, tuple[float, float, int | None]]:
    """Return kernel -> (bytes moved and operations per element, most instructions), as its comment says."""
    return {
        name: (float(moved), float(done), int(most) if most else None)
        for name, moved, done, most in _COST.findall(source)
    }


def ceilings(source: str) -> dict[str, dict[str, int]]:
    """Return variant -> kernel -> most instructions."""
    return {
        label: {name: int(most) for name, most in (item.split() for item in items.split(", "))}
        for label, items in _CEILING.findall(source)
    }


def faults(reports: Sequence[Report]) -> list[str]:
    """Say of each report what is wrong with it."""
    told = []
    for r in reports:
        where = f"{r.package} {r.kernel}" + (f" ({r.variant})" if r.variant else "")
        spilling = [architecture for architecture, spilled in r.spilled_bytes.items() if spilled]
        if spilling:
            told.append(f"{where} spills on {', '.join(spilling)}")
        local = [architecture for architecture, size in r.local_bytes.items() if size]
        if local and not spilling:
            told.append(f"{where} keeps an array in local memory on {', '.join(local)}: index it by constants")
        count = r.instructions.get(CEILING_ARCHITECTURE)
        if count is not None and r.ceiling is not None and count > r.ceiling:
            told.append(f"{where} has {count} instructions, more than the {r.ceiling} its comment allows")
        if r.bytes_per_element is None:
            told.append(f"{where} has no comment that says what it moves and does")
    return told


def parse_log(log: str) -> dict[str, tuple[int, int, int, int]]:
    """Return kernel -> (registers, spilled bytes, local bytes, shared bytes) from the assembler's verbose log."""
    found = {}
    for name, text in zip(_ENTRY.findall(log), _ENTRY.split(log)[2::2], strict=True):
        used, spill, shared = _USED.search(text), _SPILL.search(text), _SHARED.search(text)
        if used is None or spill is None:
            raise ValueError(f"cannot read what the assembler says of {name!r}: {text!r}")
        stack, stores, loads = map(int, spill.groups())
        found[name] = int(used[1]), stores + loads, stack, int(shared[1]) if shared else 0
    return found


def parse_disassembly(text: str) -> dict[str, int]:
    """Return kernel -> number of instructions, padding left out."""
    counts: dict[str, int] = {}
    current = None
    for line in text.splitlines():
        if match := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            current = match[1]
            counts[current] = 0
        elif current and re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP\b)\S", line):
            counts[current] += 1
    return counts


def compile_cubin(source: str, options: Sequence[str], architecture: str) -> tuple[bytes, str]:
    """Compile with NVRTC; return the cubin and the assembler's log.

    Raises:
        ModuleNotFoundError: cuda-core is not installed.
    """
    from cuda.core import Program, ProgramOptions

    macros = [tuple(option[2:].split("=", 1)) for option in options if option.startswith("-D")]
    settings: dict[str, Any] = {"std": "c++17", "arch": architecture, "ptxas_options": ["-v"]}
    if macros:
        settings["define_macro"] = macros
    log = io.StringIO()
    code = Program(source, "c++", ProgramOptions(**settings)).compile("cubin", logs=log).code
    return bytes(code), log.getvalue()


def disassembler() -> Path | None:
    """Find nvdisasm, of the PyPI wheel or on the path."""
    import shutil

    for folder in map(Path, sys.path):
        for found in folder.glob("nvidia/*/bin/nvdisasm*"):
            return found
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def count_instructions(cubin: bytes) -> dict[str, int]:
    """Return kernel -> instructions; empty without nvdisasm."""
    tool = disassembler()
    if tool is None:
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "kernels.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True)
    return parse_disassembly(done.stdout)


def report(path: Path, root: Path = ROOT, architectures: Sequence[str] = ARCHITECTURES) -> list[Report]:
    """Compile one file in all its variants for all architectures."""
    source = path.read_text(encoding="utf-8")
    stated, own = costs(source), ceilings(source)
    reports: list[Report] = []
    for label, options in variants(source).items():
        package = path.relative_to(root).parts[1]
        of = {
            name: Report(package, path.name, label, name, *stated.get(name, (None, None, None)))
            for name in signatures(source, options)
        }
        for name, most in own.get(label, {}).items():
            of[name].ceiling = most
        for architecture in architectures:
            cubin, log = compile_cubin(source, options, architecture)
            counted = count_instructions(cubin)
            for name, (registers, spilled, local, shared) in parse_log(log).items():
                of[name].registers[architecture] = registers
                of[name].spilled_bytes[architecture] = spilled
                of[name].local_bytes[architecture] = local
                of[name].shared_bytes[architecture] = shared
                of[name].cubin_bytes[architecture] = len(cubin)
                if name in counted:
                    of[name].instructions[architecture] = counted[name]
        reports += of.values()
    return reports


def table(reports: Sequence[Report]) -> list[list[str]]:
    """Return the rows to print: worst case over the architectures, registers one by one."""
    rows = [["kernel", "registers", "spills", "shared", "instructions", "cubin", "bytes", "operations"]]
    rows[0][1] += " " + "/".join(a.removeprefix("sm_") for a in ARCHITECTURES)
    previous = None
    for r in reports:
        if (r.package, r.file, r.variant) != previous:
            previous = (r.package, r.file, r.variant)
            rows.append([f"{r.package} {r.file}" + (f" ({r.variant})" if r.variant else "")])
        rows.append(
            [
                f"  {r.kernel}",
                "/".join(str(v) for v in r.registers.values()),
                str(max(r.spilled_bytes.values(), default=0)),
                str(max(r.shared_bytes.values(), default=0)),
                f"{min(r.instructions.values())}..{max(r.instructions.values())}" if r.instructions else "",
                f"{max(r.cubin_bytes.values(), default=0) / 1024:.0f} KiB",
                "?" if r.bytes_per_element is None else f"{r.bytes_per_element:g}",
                "?" if r.operations_per_element is None else f"{r.operations_per_element:g}",
            ]
        )
    return rows


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="packages; default: all that have kernels")
    parser.add_argument("-o", "--output", type=Path, help="write everything here, as JSON")
    options = parser.parse_args(arguments)
    files = [
        path
        for path in sorted(root.glob("packages/*/src/**/*.cu"))
        if not options.names or path.relative_to(root).parts[1] in options.names
    ]
    if not files:
        print("no kernels found")
        return 0
    reports: list[Report] = []
    try:
        for path in files:
            reports += report(path, root)
    except ModuleNotFoundError as error:
        print(f"{error}: pip install cuda-core cuda-bindings nvidia-cuda-nvrtc nvidia-nvjitlink", file=sys.stderr)
        return 2
    rows = table(reports)
    widths = [max(len(row[i]) for row in rows if len(row) > 1) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())
    if options.output is not None:
        options.output.write_text(json.dumps([asdict(r) for r in reports], indent=1) + "\n", encoding="utf-8")
    told = faults(reports)
    if told:
        print("\n".join(told), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
