"""The one entrance: `nox` runs lint, types and tests; `nox -s demo` shows what the packages do.

Sessions that work on one package at a time are named `tests(splitzip)` and so on; packages are found by looking into
`packages/`, so adding one changes nothing here. Every session makes its environment from the project's own files and
`tools/constraints.txt`; what a package needs for a session beyond itself stands in its `[tool.sprigs.<session>]`.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).parent
HUB = ROOT / "shared"
TOOLS = ROOT / "tools"
CONSTRAINTS = TOOLS / "constraints.txt"
METHODS = {path.parent.name: path.parent for path in sorted(ROOT.glob("packages/*/pyproject.toml"))}
ENV = {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

# Compiles CUDA C without a GPU.
NVRTC = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm")

CLAIMED = [name for name, path in METHODS.items() if any(path.glob("src/*/claims.py"))]
each_claimed = nox.parametrize("package", [nox.param(name, id=name) for name in CLAIMED])
HOSTED = [name for name, path in METHODS.items() if "[tool.sprigs.hosts]" in (path / "pyproject.toml").read_text()]
each_hosted = nox.parametrize("package", [nox.param(name, id=name) for name in HOSTED])
each_distribution = nox.parametrize("package", [nox.param(name, id=name) for name in ("sprigs", *METHODS)])
each_suite = nox.parametrize("package", [nox.param(name, id=name) for name in ("sprigs", "tools", *METHODS)])


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, import directions, generated tables."""
    session.install("ruff", env=ENV)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", TOOLS / "imports.py")
    session.run("python", TOOLS / "tables.py", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, on every package's source."""
    packages = [arg for path in METHODS.values() for arg in ("-e", str(path))]
    session.install("mypy", "numpy", "-e", f"{HUB}[bench,testing,data]", *packages, env=ENV)
    for folder in (HUB, *METHODS.values()):
        session.run("mypy", "--config-file", ROOT / "pyproject.toml", folder / "src")
    session.run("mypy", "--config-file", ROOT / "pyproject.toml", *sorted(TOOLS.glob("*.py")))


@nox.session
@each_suite
def tests(session: nox.Session, package: str) -> None:
    """The tests of one package, in its own environment; `-- --slow` adds the slow ones, the rest goes to pytest."""
    arguments = list(session.posargs)
    slow = "--slow" in arguments
    if slow:
        arguments.remove("--slow")
    if package == "sprigs":
        folder = HUB
        session.install("hypothesis", "-e", f"{HUB}[bench,testing,data]", env=ENV)
    elif package == "tools":
        folder = TOOLS
        session.install("ruff", "mypy", "build", "twine", "nox", *NVRTC, "-e", f"{HUB}[testing]", env=ENV)
    else:
        folder = METHODS[package]
        _install_method(session, package, "tests")
        if slow:
            _install_method(session, package, "slow")
    session.run(
        *("pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder, folder / "tests"),
        *("-m", "not gpu" if slow else "not gpu and not slow"),
        *arguments,
        env={**ENV, "OMP_NUM_THREADS": "2"},
    )


@nox.session
@each_claimed
def claims(session: nox.Session, package: str) -> None:
    """Run a paper's claims and keep the results for the README; further arguments go to `sprigs claims`."""
    _install_method(session, package, "claims")
    results = METHODS[package] / "benchmarks" / "results" / "claims.json"
    # Exit code 1 says that a claim does not hold: that is a result, and the README shows it.
    session.run("sprigs", "claims", package, "-o", results, *session.posargs, success_codes=[0, 1])
    session.run("python", TOOLS / "tables.py")


@nox.session
@each_distribution
def bench(session: nox.Session, package: str) -> None:
    """Run a package's benchmarks and keep the results for the README; further arguments go to each of them."""
    if package == "sprigs":
        folder = HUB
        session.install("-e", f"{HUB}[bench]", env=ENV)
    else:
        folder = METHODS[package]
        _install_method(session, package, "bench")
    for script in sorted(folder.glob("benchmarks/bench_*.py")):
        results = script.parent / "results" / script.with_suffix(".json").name.removeprefix("bench_")
        session.run("python", script, "-o", results, *session.posargs)
    session.run("python", TOOLS / "tables.py")


@nox.session
@each_distribution
def build(session: nox.Session, package: str) -> None:
    """Build sdist and wheel, check them, install the wheel alone elsewhere, and run it from outside the checkout."""
    session.install("build", "twine", env=ENV)
    out = Path(session.create_tmp()).absolute() / "dist"
    shutil.rmtree(out, ignore_errors=True)
    folder = HUB if package == "sprigs" else METHODS[package]
    for source in {HUB, folder}:
        session.run("python", "-m", "build", "--outdir", out, source, env=ENV, silent=True)
    session.run("twine", "check", "--strict", *sorted(out.glob("*")))
    elsewhere = out.parent / "elsewhere"
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    session.run("python", "-m", "venv", elsewhere / "venv")
    python = elsewhere / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    (wheel,) = out.glob(f"{_distribution(folder).replace('-', '_')}-*.whl")
    session.run(python, "-m", "pip", "install", "-q", "--find-links", out, wheel, env=ENV, external=True)
    with session.chdir(elsewhere):
        command = ["list"] if package == "sprigs" else ["demo", package]
        session.run(python.with_name("sprigs"), *command, external=True)


@nox.session
def kernels(session: nox.Session) -> None:
    """Compile every CUDA kernel for every architecture, without a GPU; arguments go to `tools/kernels.py`."""
    session.install(*NVRTC, "-e", str(HUB), env=ENV)
    session.run("python", TOOLS / "kernels.py", *session.posargs)


@nox.session
@each_hosted
def hosts(session: nox.Session, package: str) -> None:
    """Run the slow tests that need the systems a package has adapters for (gigabytes to install)."""
    _install_method(session, package, "hosts")
    folder = METHODS[package]
    session.run(
        *("pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder, folder / "tests", "-m", "slow", "-k", "real"),
        *("-rs", *session.posargs),
        env={**ENV, "OMP_NUM_THREADS": "2"},
    )


@nox.session
def demo(session: nox.Session) -> None:
    """Run every package's demo, or those named after `--`."""
    for package in session.posargs or METHODS:
        if package not in METHODS:
            session.error(f"there is no package {package!r}; there are {', '.join(METHODS)}")
        _install_method(session, package, "demo")
    out = ROOT / "demo-output"
    out.mkdir(exist_ok=True)
    with session.chdir(out):
        for package in session.posargs or METHODS:
            session.run("sprigs", "demo", package)


def _install_method(session: nox.Session, package: str, what: str) -> None:
    """Install hub and method, editable, with what the method's `[tool.sprigs.<what>]` asks for."""
    folder = METHODS[package]
    wanted = _project(folder).get("tool", {}).get("sprigs", {}).get(what, {})
    extras = f"[{','.join(wanted['extras'])}]" if wanted.get("extras") else ""
    support = [arg for name in _support(folder) for arg in ("-e", str(METHODS[name]))]
    hub = f"{HUB}[testing]" if what == "tests" else f"{HUB}[bench]" if what == "bench" else str(HUB)
    session.install("-e", hub, *support, "-e", f"{folder}{extras}", *wanted.get("requires", ()), env=ENV)
    if wanted.get("no-deps"):
        session.install("--no-deps", *wanted["no-deps"], env=ENV)


def _support(folder: Path) -> list[str]:
    """Return the packages of this repository that a package depends on, in any of its extras."""
    project = _project(folder)["project"]
    groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    text = [requirement for group in groups for requirement in group]
    own = {_distribution(path): name for name, path in METHODS.items() if path != folder}
    return sorted({name for dist, name in own.items() for r in text if r.split("[")[0].split(">")[0].strip() == dist})


def _distribution(folder: Path) -> str:
    return str(_project(folder)["project"]["name"])


def _project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
