"""`sprigs doctor`."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import click

from sprigs import Registry
from sprigs._entries import error_dict
from sprigs._loading import describe
from sprigs.bench._facts import version
from sprigs.cli._app import EXIT_FAILED, registry_of
from sprigs.cli._arguments import json_option
from sprigs.cli._output import new_table, print_json, print_table

DISTRIBUTIONS = ("sprigs", "pluggy", "click", "rich", "numpy", "torch", "jax")
COMPILERS = ("nvcc", "g++", "clang++")


@dataclass(frozen=True)
class Cuda:
    """What CuPy says of the devices."""

    cupy: str | None
    devices: tuple[str, ...] = ()
    problem: str = ""


@click.command("doctor")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Look at the environment and load every method. Exits with 1 when one fails."""
    registry = registry_of(context)
    # The point is to see every failure.
    failures = registry.load_all(strict=False)
    versions = {name: version(name) for name in DISTRIBUTIONS}
    compilers = {name: compiler_version(name) for name in COMPILERS}
    cuda = cuda_devices()
    emulator = emulator_state(registry)
    if as_json:
        print_json(
            {
                "python": platform.python_version(),
                "system": f"{platform.system()} {platform.machine()}",
                "versions": versions,
                "cupy": cuda.cupy,
                "cuda_devices": list(cuda.devices),
                "cuda_problem": cuda.problem,
                "compilers": compilers,
                "emulator": emulator,
                "methods": [
                    {**entry.to_dict(), "error": error_dict(entry.error)} for entry in registry.methods().values()
                ],
            }
        )
    else:
        table = new_table("", "")
        table.show_header = False
        table.add_row("python", f"{platform.python_version()} on {platform.system()}")
        for name, found in {**versions, **compilers}.items():
            table.add_row(name, found or "not found")
        table.add_row("kernel emulator", emulator)
        table.add_row("cupy", cuda.cupy or "not found")
        table.add_row("cuda devices", ", ".join(cuda.devices) or cuda.problem or "none")
        for entry in registry.methods().values():
            state = "ok" if entry.error is None else type(entry.error).__name__
            table.add_row(f"method {entry.name}", f"{entry.distribution} {entry.version}: {state}")
        print_table(table)
        for failure in failures.values():
            click.echo(str(failure), err=True)
    if failures:
        context.exit(EXIT_FAILED)


def compiler_version(name: str) -> str | None:
    """The version a compiler prints of itself, None where there is none."""
    found = shutil.which(name)
    if found is None:
        return None
    try:
        printed = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer: {describe(error)}"
    # nvcc gives its release on the fourth line, the others on the first.
    lines = printed.splitlines() or [""]
    return next((line.strip() for line in lines if "release" in line), lines[0].strip())


def emulator_state(registry: Registry) -> str:
    """Whether `sprigs-emulator` is installed, and the compiler it uses."""
    if "emulator" not in registry.methods():
        return "not installed (pip install sprigs-emulator)"
    try:
        find_compiler: Any = registry.load("emulator", "find_compiler")
        return f"uses {find_compiler()}"
    except Exception as error:
        # A failure of the plugin is told with the others; of the search for a compiler, here.
        return describe(error)


def cuda_devices() -> Cuda:
    """CuPy's version and the devices it sees."""
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        return Cuda(None, problem="" if missing else describe(error))
    runtime = cupy.cuda.runtime
    try:
        names = [runtime.getDeviceProperties(i)["name"] for i in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as error:
        return Cuda(cupy.__version__, problem=describe(error))
    return Cuda(cupy.__version__, tuple(name.decode() for name in names))
