"""What a reader must know of the machine, and nothing that tells whose it is."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def machine(packages: Iterable[str] = ()) -> dict[str, object]:
    """Processor, cores, Python, operating system, and versions of the named distributions."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: version(name) for name in ("sprigs", *packages)},
    }


def cpu_model() -> str:
    """The marketing name of the processor, `unknown` where the system does not say."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or "unknown"


def usable_cores() -> int | None:
    """The cores this process may use, which a container can make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def version(distribution: str) -> str | None:
    """The version of a distribution, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def command_line() -> str:
    """The command that runs, every path in it cut down to its last part."""
    return shlex.join(_without_folders(argument) for argument in sys.argv)


def _without_folders(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    return option + equals + re.split(r"[/\\]", value.rstrip("/\\"))[-1]
