"""The separable product as machine code for this CPU: a vector of rows at a time, the grid in registers.

The back end "native". LLVM (through llvmlite) compiles one function for each program and slot: rings and meridians are
loops, everything inside them is unrolled; coefficients of W rows (16 of float32 with AVX-512) are transposed into
vectors, and no field of the grid is ever written to memory. Per row it must read and write n1 + n2 + 2 n3 numbers; it
does

    rings * (fields * n + fields * (2L + 1) * meridians / 2)

multiply-adds, an order less than the dense product with the grid.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from .errors import BackendUnavailable
from .programs import G, Program

# Beyond, the unrolled code outgrows the instruction cache and compiling takes seconds.
MAX_BAND = 12

# (part, order): cosine or sine coefficient of a ring -> [(coefficient of the features, its value on every ring)].
_Spectrum = dict[tuple[str, int], list[tuple[int, npt.NDArray[np.float64]]]]


def spectra(form: Program, slot: int) -> list[_Spectrum]:
    """Return, for each field of a slot, its ring's cosine and sine coefficients as sums over the features."""
    rings, _ = form.separable[slot]
    band = form.bands[slot]
    index = form.orders(slot)
    n = form.sizes[slot]
    out = []
    for q, (spin, part, _) in enumerate(form.fields[slot]):
        slope = (spin, part) == (1, 1)
        found: _Spectrum = {}
        for m in range(-band, band + 1):
            for j, k in enumerate(index[m + band].tolist()):
                values = rings[q, m + band, :, j]
                if k == n or not values.any():
                    continue
                size = np.sqrt(2) if m else 1.0
                if not slope:
                    found.setdefault(("cos" if m >= 0 else "sin", abs(m)), []).append((k, size * values))
                elif m > 0:
                    found.setdefault(("sin", m), []).append((k, -m * size * values))
                elif m < 0:
                    found.setdefault(("cos", -m), []).append((k, -m * size * values))
        out.append(found)
    return out


@dataclass
class _Emitter:
    """Lines of LLVM's assembly, with fresh names."""

    lanes: int
    scalar: str
    lines: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def splat(self, address: str) -> str:
        value = self.put(f"load {self.scalar}, ptr {address}")
        one = self.put(f"insertelement {self.vector} poison, {self.scalar} {value}, i64 0")
        return self.put(
            f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def at(self, base: str, index: int | str) -> str:
        return self.put(f"getelementptr {self.scalar}, ptr {base}, i64 {index}")

    def slot(self, base: str, index: int) -> str:
        return self.put(f"getelementptr {self.vector}, ptr {base}, i64 {index}")

    def load(self, base: str, index: int) -> str:
        return self.put(f"load {self.vector}, ptr {self.slot(base, index)}")

    def store(self, value: str, base: str, index: int) -> None:
        address = self.slot(base, index)
        self.do(f"store {self.vector} {value}, ptr {address}")

    def fma(self, a: str, b: str, c: str) -> str:
        v = self.vector
        return self.put(f"call {v} @llvm.fma.{self.suffix}({v} {a}, {v} {b}, {v} {c})")

    def op(self, name: str, a: str, b: str) -> str:
        return self.put(f"{name} {self.vector} {a}, {b}")

    def constant(self, value: float) -> str:
        bits = np.array(value, np.float32 if self.scalar == "float" else np.float64).astype(np.float64)
        text = f"0x{int(bits.view(np.uint64)):016X}"
        return f"splat ({self.scalar} {text})"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}{'f32' if self.scalar == 'float' else 'f64'}"

    def transpose(self, rows: list[str]) -> list[str]:
        """Transpose as many vectors as there are lanes, by perfect shuffles."""
        w, v = self.lanes, self.vector
        half = w // 2
        low = ", ".join(f"i32 {k // 2 + (w if k % 2 else 0)}" for k in range(w))
        high = ", ".join(f"i32 {half + k // 2 + (w if k % 2 else 0)}" for k in range(w))
        for _ in range(w.bit_length() - 1):
            new = []
            for i in range(half):
                for mask in (low, high):
                    new.append(self.put(f"shufflevector {v} {rows[i]}, {v} {rows[i + half]}, <{w} x i32> <{mask}>"))
            rows = new
        return rows

    def mask(self, width: int) -> str:
        return f"<{self.lanes} x i1> <" + ", ".join(f"i1 {int(k < width)}" for k in range(self.lanes)) + ">"


class Layout(Protocol):
    """Where the code finds features and leaves results: plain rows, or a whole layer's irreps and weights."""

    @property
    def parameters(self) -> str:
        """Of the function, besides the tables."""

    def begin(self, e: _Emitter, block: str) -> None:
        """Compute the addresses of a block of rows."""

    def read(self, e: _Emitter, slot: int, memory: str) -> None:
        """Bring a slot's features into one vector for each coefficient."""

    def write(self, e: _Emitter, memory: str) -> None:
        """Take the solved slot's vectors out."""


def assembly(
    form: Program, slot: int, lanes: int, scalar: str, layout: Layout | None = None
) -> tuple[str, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the function in LLVM's assembly, its table of rings and its table of meridians."""
    layout = Rows(form, slot) if layout is None else layout
    first, second = ((1, 2), (0, 2), (0, 1))[slot]
    parts = {s: spectra(form, s) for s in (0, 1, 2)}
    fields, kinds = form.fields, form.outputs
    n_b, n_a = len(form.grid[0]), len(form.grid[1])
    e = _Emitter(lanes, scalar)
    v = e.vector
    # Tables: a ring's values in the order in which the code reads them.
    ring_columns: list[npt.NDArray[np.float64]] = []
    widths = {s: form.sizes[s] * (kinds if s == G else 1) for s in (0, 1, 2)}
    band = max(form.bands)
    e.lines.append(
        f"define void @run({layout.parameters}, ptr noalias %rings, ptr noalias %meridians, i64 %blocks) #0 {{"
    )
    e.label("entry")
    memory = {s: e.put(f"alloca {v}, i64 {widths[s]}, align 64") for s in (0, 1, 2)}
    spectrum_of: dict[tuple[int, int, str, int], str] = {}
    for s in (first, second):
        for q, found in enumerate(parts[s]):
            for part, m in found:
                spectrum_of[s, q, part, m] = e.put(f"alloca {v}, align 64")
    sums_of: dict[tuple[int, str, int], str] = {}
    for q, found in enumerate(parts[slot]):
        for part, m in found:
            sums_of[q, part, m] = e.put(f"alloca {v}, align 64")
    # Counters are allocated in the entry block, so that they become registers.
    counters = {name: e.put("alloca i64") for name in ("block", "ring", "meridian")}

    def begin(name: str) -> str:
        e.do(f"store i64 0, ptr {counters[name]}")
        e.do(f"br label %{name}")
        e.label(name)
        return e.put(f"load i64, ptr {counters[name]}")

    def end(name: str, index: str, stop: str) -> None:
        following = e.put(f"add nuw nsw i64 {index}, 1")
        e.do(f"store i64 {following}, ptr {counters[name]}")
        done = e.put(f"icmp eq i64 {following}, {stop}")
        e.do(f"br i1 {done}, label %{name}.end, label %{name}")
        e.label(f"{name}.end")

    block = begin("block")
    layout.begin(e, block)
    for s in (first, second):
        layout.read(e, s, memory[s])
    for k in range(widths[slot]):
        e.store("zeroinitializer", memory[slot], k)

    ring = begin("ring")
    ring_base = e.put(f"mul i64 {ring}, RINGWIDTH")
    base = e.at("%rings", ring_base)
    for s in (first, second):
        for q, found in enumerate(parts[s]):
            offset = fields[s][q][2] * form.sizes[s] if s == G else 0
            for (part, m), items in found.items():
                total = None
                for k, values in items:
                    table = e.splat(e.at(base, len(ring_columns)))
                    ring_columns.append(values)
                    x = e.load(memory[s], offset + k)
                    total = e.op("fmul", table, x) if total is None else e.fma(table, x, total)
                e.do(f"store {v} {total}, ptr {spectrum_of[s, q, part, m]}")
    for address in sums_of.values():
        e.do(f"store {v} zeroinitializer, ptr {address}")

    meridian = begin("meridian")
    line = e.at("%meridians", e.put(f"mul i64 {meridian}, {1 + 2 * band}"))
    half = e.splat(e.at(line, 0))
    cos = {m: e.splat(e.at(line, m)) for m in range(1, band + 1)}
    sin = {m: e.splat(e.at(line, band + m)) for m in range(1, band + 1)}
    points: dict[int, list[tuple[str, str]]] = {}
    for s in (first, second):
        points[s] = []
        for q, found in enumerate(parts[s]):
            even = odd = None
            for (part, m), _ in sorted(found.items()):
                value = e.put(f"load {v}, ptr {spectrum_of[s, q, part, m]}")
                if part == "cos":
                    if m == 0:
                        even = value if even is None else e.op("fadd", even, value)
                    else:
                        even = e.op("fmul", value, cos[m]) if even is None else e.fma(value, cos[m], even)
                else:
                    odd = e.op("fmul", value, sin[m]) if odd is None else e.fma(value, sin[m], odd)
            even = "zeroinitializer" if even is None else even
            odd = "zeroinitializer" if odd is None else odd
            points[s].append((e.op("fadd", even, odd), e.op("fsub", even, odd)))
    for q, found in enumerate(parts[slot]):
        sides = []
        for side in (0, 1):
            total = None
            for term in form.terms:
                if term[slot] != q:
                    continue
                left, right = points[first][int(term[first])][side], points[second][int(term[second])][side]
                c = term[3]
                if total is None:
                    total = e.op("fmul", left, right)
                    if c != 1.0:
                        total = e.op("fmul", total, e.constant(c))
                else:
                    if c == -1.0:
                        left = e.put(f"fneg {v} {left}")
                    elif c != 1.0:
                        left = e.op("fmul", left, e.constant(c))
                    total = e.fma(left, right, total)
            sides.append(total)
        plus = e.op("fmul", half, e.op("fadd", str(sides[0]), str(sides[1])))
        minus = e.op("fsub", str(sides[0]), str(sides[1]))
        for part, m in found:
            address = sums_of[q, part, m]
            before = e.put(f"load {v}, ptr {address}")
            if part == "cos":
                after = e.op("fadd", before, plus) if m == 0 else e.fma(cos[m], plus, before)
            else:
                after = e.fma(sin[m], minus, before)
            e.do(f"store {v} {after}, ptr {address}")
    end("meridian", meridian, str(n_a // 2 + 1))

    for q, found in enumerate(parts[slot]):
        offset = fields[slot][q][2] * form.sizes[slot] if slot == G else 0
        for (part, m), items in found.items():
            total = e.put(f"load {v}, ptr {sums_of[q, part, m]}")
            for k, values in items:
                table = e.splat(e.at(base, len(ring_columns)))
                ring_columns.append(values * form.grid[2])
                before = e.load(memory[slot], offset + k)
                e.store(e.fma(table, total, before), memory[slot], offset + k)
    end("ring", ring, str(n_b))
    layout.write(e, memory[slot])
    end("block", block, "%blocks")
    e.do("ret void")
    e.lines.append("}")
    for name in ("fma",):
        e.lines.append(f"declare {v} @llvm.{name}.{e.suffix}({v}, {v}, {v})")
    mask = f"<{lanes} x i1>"
    e.lines.append(f"declare {v} @llvm.masked.load.{e.suffix}.p0(ptr, i32, {mask}, {v})")
    e.lines.append(f"declare void @llvm.masked.store.{e.suffix}.p0({v}, ptr, i32, {mask})")
    bits = lanes * (32 if scalar == "float" else 64)
    e.lines.append(f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}')
    text = "\n".join(e.lines).replace("RINGWIDTH", str(len(ring_columns)))
    dtype = np.float32 if scalar == "float" else np.float64
    rings = np.ascontiguousarray(np.array(ring_columns).T, dtype)
    alpha = form.grid[1][: n_a // 2 + 1, None]
    order = np.arange(1, band + 1)
    paired = np.ones_like(alpha)
    paired[0] = 0.5
    if n_a % 2 == 0:
        paired[-1] = 0.5
    meridians = np.concatenate([paired, np.cos(order * alpha), np.sin(order * alpha)], axis=1)
    if n_a % 2 == 0:
        meridians[-1, 1 + band :] = 0.0  # exactly
    return text, rings, np.ascontiguousarray(meridians, dtype)


def _tiles(n: int, lanes: int) -> list[tuple[int, int]]:
    return [(t, min(lanes, n - t)) for t in range(0, n, lanes)]


def read_rows(e: _Emitter, base: str, stride: int, n: int) -> list[str]:
    """Return n vectors of the n numbers at the begin of as many rows as lanes, `stride` numbers apart."""
    v, align = e.vector, 4 if e.scalar == "float" else 8
    out = []
    for t, width in _tiles(n, e.lanes):
        rows = []
        for r in range(e.lanes):
            address = e.at(base, r * stride + t)
            if width == e.lanes:
                rows.append(e.put(f"load {v}, ptr {address}, align {align}"))
            else:
                given = f"ptr {address}, i32 {align}, {e.mask(width)}, {v} zeroinitializer"
                rows.append(e.put(f"call {v} @llvm.masked.load.{e.suffix}.p0({given})"))
        out += e.transpose(rows)[:width]
    return out


def write_rows(e: _Emitter, base: str, stride: int, columns: list[str]) -> None:
    """The reverse of `read_rows`."""
    v, align = e.vector, 4 if e.scalar == "float" else 8
    for t, width in _tiles(len(columns), e.lanes):
        tile = columns[t : t + width] + ["zeroinitializer"] * (e.lanes - width)
        for r, row in enumerate(e.transpose(tile)):
            address = e.at(base, r * stride + t)
            if width == e.lanes:
                e.do(f"store {v} {row}, ptr {address}, align {align}")
            else:
                given = f"{v} {row}, ptr {address}, i32 {align}, {e.mask(width)}"
                e.do(f"call void @llvm.masked.store.{e.suffix}.p0({given})")


@dataclass
class Rows:
    """Features [rows, n], for the output [K, rows, n3]; %rows is the stride of the kinds."""

    form: Program
    slot: int
    start: str = ""

    @property
    def parameters(self) -> str:
        """The two inputs, the output, and the rows."""
        return "ptr noalias %a, ptr noalias %b, ptr noalias %out, i64 %rows"

    def begin(self, e: _Emitter, block: str) -> None:
        """Find the first row."""
        self.start = e.put(f"mul i64 {block}, {e.lanes}")

    def _base(self, e: _Emitter, slot: int, pointer: str, kind: int) -> str:
        n = self.form.sizes[slot]
        offset = e.put(f"mul i64 {self.start}, {n}")
        if kind:
            skip = e.put(f"mul i64 %rows, {kind * n}")
            offset = e.put(f"add i64 {offset}, {skip}")
        return e.at(pointer, offset)

    def read(self, e: _Emitter, slot: int, memory: str) -> None:
        """Transpose."""
        n = self.form.sizes[slot]
        pointer = "%b" if slot == max(s for s in (0, 1, 2) if s != self.slot) else "%a"
        for kind in range(self.form.outputs if slot == G else 1):
            for k, column in enumerate(read_rows(e, self._base(e, slot, pointer, kind), n, n)):
                e.store(column, memory, kind * n + k)

    def write(self, e: _Emitter, memory: str) -> None:
        """Transpose."""
        n = self.form.sizes[self.slot]
        for kind in range(self.form.outputs if self.slot == G else 1):
            columns = [e.load(memory, kind * n + k) for k in range(n)]
            write_rows(e, self._base(e, self.slot, "%out", kind), n, columns)


@dataclass(frozen=True)
class Function:
    """A compiled product: `function(a, b, out, rows)` with addresses of contiguous arrays."""

    run: Any
    lanes: int
    tables: tuple[int, int]
    keep: Any

    def __call__(self, *arguments: int, blocks: int) -> None:
        """Run on whole blocks of lanes: addresses and numbers in the order of the layout's parameters."""
        self.run(*arguments, *self.tables, blocks)


_lock = threading.Lock()


def available() -> bool:
    """Whether llvmlite is installed."""
    try:
        _host()
    except BackendUnavailable:
        return False
    return True


@lru_cache(maxsize=1)
def _host() -> tuple[Any, int]:
    """LLVM's binding, ready for this CPU, and bytes a vector."""
    try:
        import llvmlite.binding as llvm
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            "backend='native' compiles with llvmlite, which is not installed: pip install 'sprigs-spingtp[fast]'"
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    return llvm, 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def _machine(llvm: Any) -> Any:
    """A target machine; each engine owns the one that it is made with."""
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


def lanes_of(dtype: str) -> int:
    """Return how many rows a vector holds."""
    return _host()[1] // (4 if dtype == "float32" else 8)


# Never evicted: code may be running in another thread.
@cache
def compile_product(form: Program, slot: int, dtype: str) -> Function:
    """Return the machine code of a product for a dtype ("float32" or "float64"); compiled once a process.

    Its arguments are addresses of the two inputs and the output, and the rows.

    Raises:
        BackendUnavailable: llvmlite is not installed.
    """
    return compile_with(form, slot, dtype, None, (ctypes.c_void_p,) * 3 + (ctypes.c_int64,))


def compile_with(form: Program, slot: int, dtype: str, layout: Layout | None, types: tuple[Any, ...]) -> Function:
    """Return the machine code of a product with a layout of its own, whose parameters have these types."""
    with _lock:
        llvm, _ = _host()
        machine = _machine(llvm)
        lanes = lanes_of(dtype)
        scalar = "float" if dtype == "float32" else "double"
        text, rings, meridians = assembly(form, slot, lanes, scalar, layout)
        module = llvm.parse_assembly(text)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        address = engine.get_function_address("run")
        run = ctypes.CFUNCTYPE(None, *types, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
        return Function(run, lanes, (rings.ctypes.data, meridians.ctypes.data), (rings, meridians, engine))


# Less work than this, in multiply-adds, is not worth handing to threads.
_SPLIT = 1 << 23


def in_parts(run: Callable[[int, int], None], count: int, work: int) -> None:
    """Call run(start, stop) over 0..count, on as many threads as torch has where the work is worth it."""
    threads = min(torch.get_num_threads(), count) if work > _SPLIT else 1
    if threads > 1:
        cuts = [count * k // threads for k in range(threads + 1)]
        jobs = [pool(threads).submit(run, p, q) for p, q in pairwise(cuts[1:])]
        run(cuts[0], cuts[1])
        for job in jobs:
            job.result()
    elif count:
        run(0, count)


@lru_cache(maxsize=8)
def pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that run products; ctypes lets go of the interpreter's lock."""
    return ThreadPoolExecutor(threads, thread_name_prefix="spingtp")
