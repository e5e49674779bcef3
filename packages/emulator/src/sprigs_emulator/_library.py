"""Kernel text to a loaded library: preprocess, rewrite, compile, keep, load."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from . import _abi
from ._arguments import Parameter
from ._compiler import INCLUDE, Compiler, cache_folder, compile_kernels, key, preprocess, store
from ._lines import LineTable
from ._rewrite import Rewritten, rewrite
from ._signature import Signature
from .errors import CompileError

_IGNORED = re.compile(
    r"--?(use_fast_math|lineinfo|generate-line-info|device-debug|G|default-device|fmad=(true|false)|ftz=(true|false)"
    r"|prec-div=(true|false)|prec-sqrt=(true|false)|maxrregcount=\d+|extra-device-vectorization)"
)
_STANDARD = re.compile(r"--?std=(c\+\+\d\d)")
_ARCHITECTURE = re.compile(r"--?(?:gpu-architecture|arch)=(?:sm|compute)_(\d+)a?")


@dataclass(frozen=True)
class Source:
    """What is to be compiled.

    Attributes:
        text: CUDA C.
        filename: what reports and messages call it.
        options: the compiler's options, see `host_options`.
        expressions: instantiations of template kernels, such as `scale<float>`.
    """

    text: str
    filename: str
    options: tuple[str, ...]
    expressions: tuple[str, ...]

    def is_own(self, file: str) -> bool:
        """Whether a file that a line belongs to is the user's, neither the emulator's nor the system's."""
        if file == self.filename:
            return True
        folders = [option[2:] for option in self.options if option.startswith("-I")]
        return any(Path(file).is_relative_to(folder) for folder in folders) and not file.startswith(str(INCLUDE))


def host_options(options: Sequence[str]) -> tuple[str, ...]:
    """Turn options as CuPy takes them into the host compiler's.

    Args:
        options: -D, -U, -I and --std in one or two words; an architecture sets `__CUDA_ARCH__`; those that only tune
            the device's code are dropped.

    Raises:
        ValueError: an option is none of these.
    """
    if isinstance(options, str):
        raise TypeError(f"options is a sequence of strings, such as ({options!r},), given the string {options!r}")
    result: list[str] = []
    words = list(options)
    while words:
        word = words.pop(0)
        if word in ("-D", "-U", "-I") and words:
            word += words.pop(0)
        word = re.sub(r"^--(define-macro|undefine-macro|include-path)=", lambda m: "-" + m[1][0].upper(), word)
        if word.startswith("-I") and len(word) > 2:
            result.append("-I" + str(Path(word[2:]).resolve()))
        elif word[:2] in ("-D", "-U") and len(word) > 2:
            result.append(word)
        elif match := _STANDARD.fullmatch(word):
            # The header needs C++17; an older standard asked for is a subset in practice.
            result.append("-std=" + max(match[1], "c++17"))
        elif match := _ARCHITECTURE.fullmatch(word):
            result.append(f"-D__CUDA_ARCH__={match[1]}0")
        elif not _IGNORED.fullmatch(word):
            raise ValueError(f"the emulator does not know the option {word!r}: it takes -DNAME=VALUE, -UNAME and -IDIR")
    return tuple(result)


# A library is loaded once in a process, whoever compiles the same text again: what its variables held at first.
_PRISTINE: dict[Path, dict[str, bytes]] = {}


class Library:
    """A compiled and loaded kernel file.

    Args:
        source: the text.
        compiler: the host's.
        checked: whether every access and arithmetic operation is checked; else only schedules are seeded.

    Raises:
        CompileError: the text does not compile.
    """

    def __init__(self, source: Source, compiler: Compiler, *, checked: bool) -> None:
        self.source = source
        self.checked = checked
        parts = [source.text, source.filename, str(source.options), str(source.expressions), f"checked={checked}"]
        if any(option.startswith("-I") for option in source.options):
            # The user's own headers may have changed.
            parts.append(preprocess(compiler, source.text, source.filename, source.options))
        self.path = cache_folder() / f"kernels-{key(compiler, *parts)}.so"
        notes = self.path.with_suffix(".json")
        if not (self.path.exists() and notes.exists()):
            self._build(compiler, notes)
        found = json.loads(notes.read_text(encoding="utf-8"))
        self.signatures = [Signature(**{**item, "parameters": tuple(item["parameters"])}) for item in found]
        # The runtime that it is linked with comes along, and its functions are looked up through it.
        self._loaded = ctypes.CDLL(str(self.path))
        self.module = _abi.Module.in_dll(self._loaded, "sprigs_module")
        _PRISTINE.setdefault(self.path, self.read_globals())

    def _build(self, compiler: Compiler, notes: Path) -> None:
        source = self.source
        define = ("-DSPRIGS_CHECKED",) if self.checked else ()
        rewritten = self._rewritten(compiler, define)
        # Without checks accesses go uninstrumented, except where a spin on a volatile flag must let others run.
        hooks = self.checked or rewritten.has_volatile
        if hooks and not define:
            rewritten = self._rewritten(compiler, ("-DSPRIGS_CHECKED",))
        kernels = _entries(rewritten, source)
        text = rewritten.text + _end(rewritten, kernels, source.expressions)
        standard = [option for option in source.options if option.startswith("-std=")]
        compile_kernels(compiler, text, source.filename, standard, self.path, hooks=hooks, checked=self.checked)
        store(notes, json.dumps([asdict(signature) for signature in kernels]).encode())

    def _rewritten(self, compiler: Compiler, define: tuple[str, ...]) -> Rewritten:
        source = self.source
        text = preprocess(compiler, source.text, source.filename, (*source.options, *define))
        return rewrite(text, source.is_own)

    @property
    def launch_begin(self) -> Any:
        """The runtime's `sprigs_begin`."""
        return self._loaded.sprigs_begin

    @property
    def launch_step(self) -> Any:
        """The runtime's `sprigs_step`."""
        return self._loaded.sprigs_step

    @property
    def launch_end(self) -> Any:
        """The runtime's `sprigs_end`."""
        return self._loaded.sprigs_end

    def printed(self) -> str:
        """What the last launch wrote with printf."""
        size = ctypes.c_uint64()
        self._loaded.sprigs_printed.restype = ctypes.c_void_p
        address = self._loaded.sprigs_printed(ctypes.byref(size))
        return ctypes.string_at(address, size.value).decode(errors="replace") if size.value else ""

    @cached_property
    def names(self) -> dict[str, int]:
        """Kernel name (or name expression) to its number."""
        return {self.module.kernels[i].name.decode(): i for i in range(self.module.kernel_count)}

    @cached_property
    def globals(self) -> dict[str, _abi.GlobalVariable]:
        """`__device__` and `__constant__` variables by name."""
        return {self.module.globals[i].name.decode(): self.module.globals[i] for i in range(self.module.global_count)}

    def initial_globals(self) -> dict[str, bytes]:
        """What the variables hold before any launch."""
        return dict(_PRISTINE[self.path])

    def read_globals(self) -> dict[str, bytes]:
        """What the variables hold now."""
        return {name: ctypes.string_at(v.address, v.bytes) if v.bytes else b"" for name, v in self.globals.items()}

    def write_globals(self, values: dict[str, bytes]) -> None:
        """Fill the variables."""
        for name, data in values.items():
            ctypes.memmove(self.globals[name].address, data, len(data))

    @cached_property
    def lines(self) -> LineTable:
        """From code addresses to lines of the text."""
        return LineTable(self.path, self.source.is_own)

    def parameters(self, number: int) -> list[Parameter]:
        """The parameters of a kernel, names from the text, types from the compiler."""
        kernel = self.module.kernels[number]
        return [
            Parameter(
                name,
                p.bytes,
                p.pointee_bytes,
                p.kind.decode(),
                p.element_kind.decode().strip("\0"),
                p.element_bytes,
                p.pointee_const != b"\0",
            )
            for name, p in zip(self.signatures[number].parameters, kernel.parameters[: kernel.count], strict=True)
        ]


def _entries(rewritten: Rewritten, source: Source) -> list[Signature]:
    """The kernels that get an entry: the plain ones, then the name expressions."""
    named = {signature.name: signature for signature in rewritten.signatures}
    kernels = [signature for signature in named.values() if not signature.is_template]
    for expression in source.expressions:
        name = expression.split("<")[0].split("::")[-1].strip()
        if name not in named:
            raise CompileError(f"{source.filename}: the name expression {expression!r} names no __global__ function")
        kernels.append(named[name])
    if not kernels:
        templates = [signature.name for signature in rewritten.signatures]
        hint = f"; instantiate {', '.join(templates)} by name_expressions=" if templates else ""
        raise CompileError(f"{source.filename}: there is no __global__ function in it{hint}")
    return kernels


def _end(rewritten: Rewritten, kernels: list[Signature], expressions: tuple[str, ...]) -> str:
    """The tables by which the runtime and Python find the kernels and variables."""
    plain = len(kernels) - len(expressions)
    rows: list[str] = []
    for number, signature in enumerate(kernels):
        call = signature.name if number < plain else expressions[number - plain]
        bounds = f"(unsigned)({signature.bounds})" if signature.bounds and not signature.is_template else "0"
        entry = f"sprigs::Entry<&{call}>"
        rows.append(f'{{"{call}", &{entry}::run, {entry}::parameters, {entry}::count, {bounds}}}')
    variables = [
        f'{{"{name}", (void*)&{name}, sizeof({name}), sprigs::ElementOf<decltype({name})>::bytes,'
        f" sprigs::Kind<typename sprigs::ElementOf<decltype({name})>::type>::kind}}"
        for name in rewritten.globals
    ]
    pointers = [f"(void**)&{name}" for name in rewritten.dynamic_pointers]
    return f"""
# 1 "sprigs-tables"
static const sprigs::Kernel sprigs_kernels[] = {{{", ".join(rows)}}};
static const sprigs::GlobalVariable sprigs_globals[] = {{{", ".join([*variables, "{}"])}}};
static void** sprigs_dynamic_pointers[] = {{{", ".join([*pointers, "nullptr"])}}};
sprigs::Module sprigs_module = {{sprigs_kernels, {len(rows)}, sprigs_globals, {len(variables)},
    sprigs_dynamic_pointers, {len(pointers)}, 0, 0, {{}}}};
"""
