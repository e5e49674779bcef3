"""Finding the host's C++ compiler, running it, and keeping what it makes."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .__about__ import __version__
from ._advice import advice
from .errors import CompileError, CompilerNotFound

INCLUDE = Path(__file__).parent / "include"
RUNTIME = Path(__file__).parent / "runtime"

_COMMON = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    # A loop without side effects may hang, and must then be found hanging, not be optimised away.
    "-fno-finite-loops",
)
# One contraction or reassociation less than the device makes by default: a * b + c rounds twice, as NumPy's does.
_KERNEL = (
    *_COMMON,
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-g1",
    "-gdwarf-4",
)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        path: the program.
        version: the first line of what it says of itself.
        is_clang: whether it takes clang's options.
        ucontext: whether fibers are switched by the portable, slow way (the environment variable
            `SPRIGS_EMULATOR_UCONTEXT`).
    """

    path: str
    version: str
    is_clang: bool
    ucontext: bool = False

    def __str__(self) -> str:
        return f"{self.version} ({self.path})"


def find_compiler() -> Compiler:
    """Return the compiler to use: `$SPRIGS_EMULATOR_CXX`, `$CXX`, or the first of g++, clang++ and c++.

    Raises:
        CompilerNotFound: there is none, or this is not a system the emulator runs on.
    """
    if sys.platform != "linux":
        raise CompilerNotFound(f"the emulator runs on Linux (also under WSL or in a container), not on {sys.platform}")
    ucontext = os.environ.get("SPRIGS_EMULATOR_UCONTEXT", "") not in ("", "0")
    if wanted := os.environ.get("SPRIGS_EMULATOR_CXX"):
        if (path := shutil.which(wanted)) is None:
            raise CompilerNotFound(f"SPRIGS_EMULATOR_CXX={wanted}: no such program; unset it, or name a C++ compiler")
        return _compiler(path, ucontext)
    # CXX may hold options or a wrapper besides; only a plain program is taken from it.
    if (wanted := os.environ.get("CXX")) and (path := shutil.which(wanted)):
        return _compiler(path, ucontext)
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return _compiler(path, ucontext)
    raise CompilerNotFound(
        "no C++ compiler (g++, clang++ or c++) is on the PATH: install one, such as the packages g++ or clang, or name"
        " one in SPRIGS_EMULATOR_CXX"
    )


@functools.cache
def _compiler(path: str, ucontext: bool) -> Compiler:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines()
    if told.returncode != 0 or not lines:
        raise CompilerNotFound(f"{path} --version fails: {told.stderr.strip() or 'no output'}")
    return Compiler(path, lines[0].strip(), "clang" in told.stdout.lower(), ucontext)


def cache_folder() -> Path:
    """Where compiled objects are kept: `$SPRIGS_EMULATOR_CACHE`, or the user's cache directory (XDG)."""
    if wanted := os.environ.get("SPRIGS_EMULATOR_CACHE"):
        return Path(wanted)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sprigs-emulator"


@functools.cache
def _own_sources() -> str:
    """A hash of the headers, the runtime, and the modules that rewrite and compile."""
    digest = hashlib.sha256(__version__.encode())
    headers = [path for folder in (INCLUDE, RUNTIME) for path in folder.rglob("*") if path.is_file()]
    for path in sorted([*headers, *Path(__file__).parent.glob("_*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(compiler: Compiler, *parts: str) -> str:
    """Return the name under which something made from `parts` is kept."""
    digest = hashlib.sha256()
    for part in (_own_sources(), compiler.path, compiler.version, str(compiler.ucontext), platform.machine(), *parts):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:40]


def store(path: Path, content: bytes) -> None:
    """Write a file of the cache so that nobody ever sees half of it.

    Args:
        path: where it goes; the folder is made.
        content: its bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    # The messages are read below, so they must be in English; a relative include must not find the caller's files.
    environment = {**os.environ, "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="sprigs-emulator-") as folder:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, cwd=folder, env=environment
        )


def runtime_library(compiler: Compiler) -> Path:
    """Return the compiled runtime, which every kernel's library is linked with; compiled when it is not kept yet.

    Raises:
        CompileError: the compiler cannot compile it.
    """
    path = cache_folder() / f"runtime-{key(compiler, 'runtime')}.so"
    if not path.exists():
        ucontext = ("-DSPRIGS_UCONTEXT",) if compiler.ucontext else ()
        _build(
            path,
            [compiler.path, *_COMMON, "-O2", "-U_FORTIFY_SOURCE", *ucontext, f"-I{INCLUDE}", "-shared"],
            [str(RUNTIME / "runtime.cpp"), "-lpthread", "-ldl", f"-Wl,-soname,{path.name}"],
        )
    return path


def _build(path: Path, command: list[str], rest: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        made = Path(folder) / path.name
        done = _run([*command, "-o", str(made), *rest])
        if done.returncode != 0:
            raise CompileError(f"{command[0]} cannot build {path.name}:\n{done.stderr}")
        os.replace(made, path)


def preprocess(compiler: Compiler, source: str, filename: str, options: Sequence[str]) -> str:
    """Return the text after the preprocessor, line markers included.

    Raises:
        CompileError: an include is missing, or a directive is wrong.
    """
    # The kernel's own macros come after the runtime's header, whose names they may be: -DN=8, -DT=float.
    own = [option for option in options if option[:2] in ("-D", "-U") and not option[2:].startswith(("__", "SPRIGS_"))]
    macros = "".join(_directive(option) for option in own)
    text = f'#include "sprigs/device.h"\n{macros}#line 1 "{filename}"\n{source}\n'
    others = [option for option in options if option not in own]
    command = [compiler.path, *_KERNEL, "-E", *others, f"-I{INCLUDE}", f"-isystem{INCLUDE / 'cuda'}", "-xc++", "-"]
    done = _run(command, text)
    if done.returncode != 0:
        raise CompileError(advice(done.stderr, filename))
    return done.stdout


def _directive(option: str) -> str:
    """Turn -DNAME, -DNAME=VALUE or -UNAME into a line."""
    name, equals, value = option[2:].partition("=")
    return f"#undef {name}\n" if option[1] == "U" else f"#define {name} {value if equals else 1}\n"


def compile_kernels(
    compiler: Compiler, text: str, filename: str, options: Sequence[str], path: Path, *, hooks: bool, checked: bool
) -> None:
    """Compile preprocessed text into a library beside the runtime's.

    Args:
        compiler: the compiler.
        text: C++ without directives but line markers.
        filename: what messages call the text.
        options: further options, such as `-std=`.
        path: where the library goes.
        hooks: whether every access calls the runtime.
        checked: whether arithmetic, alignment and array indices are checked too.

    Raises:
        CompileError: the text does not compile.
    """
    runtime = runtime_library(compiler)
    command = [compiler.path, *_KERNEL, *options]
    if hooks:
        command += ["-fsanitize=thread", *_hook_options(compiler)]
    if checked:
        command += ["-O1", "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift-exponent,bounds,alignment"]
    else:
        command += ["-O2", "-fwrapv"]
    # A kernel that needs no function of the runtime is run by it all the same.
    link = ["-Wl,--no-as-needed", str(runtime), "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", "-lm"]
    if hooks:
        link += [f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset")]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        made = Path(folder) / "kernels.o"
        done = _run([*command, "-c", "-xc++-cpp-output", "-", "-o", str(made)], text)
        if done.returncode != 0:
            raise CompileError(advice(done.stderr, filename))
        library = Path(folder) / path.name
        done = _run([compiler.path, "-shared", str(made), *link, "-o", str(library)])
        if done.returncode != 0:
            raise CompileError(f"{filename}: a function is called, but defined nowhere in it:\n{done.stderr.strip()}")
        os.replace(library, path)


def _hook_options(compiler: Compiler) -> list[str]:
    if compiler.is_clang:
        settings = ("distinguish-volatile=1", "instrument-func-entry-exit=0", "instrument-read-before-write=1")
        return [word for setting in settings for word in ("-mllvm", f"-tsan-{setting}")]
    return ["--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0"]
