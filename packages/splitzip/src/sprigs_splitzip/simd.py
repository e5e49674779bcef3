# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
"""Vector building blocks for numba: one group of 64 elements encoded or decoded in registers.

numba widens small integers and so loses the vector form of loops like these. The intrinsics here emit LLVM vector
operations instead, 64 lanes wide whatever the element type; LLVM splits them into the registers of the machine at
hand (AVX-512, AVX2, SSE2, NEON). All addresses are plain integers, so that read-only, foreign and unaligned buffers
need no kernel of their own.

The field widths E, M, b and the flags are compile-time constants (numba literals).
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .floats import plane_widths

SOURCE_STAMP = zlib.crc32(Path(__file__).read_bytes())
"""Changes whenever this file does, for the key under which compiled kernels are cached."""

LANES = 64

CAN_COMPRESS = bool(binding.get_host_cpu_features().get("avx512vbmi2", False)) and not numba.config.CPU_NAME
"""Whether the machine has an instruction for `store_escapes`; without one a loop over the escapes is faster."""

RUN_BYTES = 3
"""A run in the table given to the kernels: first exponent, length, first code."""

_I8, _I16, _I32, _I64 = (ir.IntType(width) for width in (8, 16, 32, 64))
_U64 = types.uint64


def _vector(width: int, lanes: int = LANES) -> ir.VectorType:
    return ir.VectorType(ir.IntType(width), lanes)


def _constant(kind: ir.VectorType, value: int) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _splat(builder: ir.IRBuilder, value: ir.Value, lanes: int = LANES) -> ir.Value:
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(_I32, lanes), None))


def _load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, nontemporal: bool) -> None:
    # A non-temporal store skips reading the line it overwrites, but must be aligned: 16 bytes is what frames promise.
    vector = isinstance(value.type, ir.VectorType)
    bits = value.type.element.width * value.type.count if vector else value.type.width
    align = min(16, bits // 8) if nontemporal else 1
    store = builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=align)
    if nontemporal:
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))


def _add(builder: ir.IRBuilder, address: ir.Value, offset: int) -> ir.Value:
    return builder.add(address, ir.Constant(_I64, offset)) if offset else address


def _plane_address(builder: ir.IRBuilder, planes: ir.Value, plane: int, width: int, group: ir.Value) -> ir.Value:
    base = _load(builder, _add(builder, planes, 8 * plane), _I64)
    return builder.add(base, builder.mul(group, ir.Constant(_I64, LANES * width // 8)))


def _write_plane(builder: ir.IRBuilder, field: ir.Value, width: int, address: ir.Value, nontemporal: bool) -> None:
    """Store the low `width` bits of 64 lanes; for widths below 8, `field` has 8-bit lanes and no higher bits set."""
    if width >= 8:
        value = field if field.type.element.width == width else builder.trunc(field, _vector(width))
    elif width == 1:
        value = builder.bitcast(builder.icmp_unsigned("!=", field, _constant(field.type, 0)), _I64)
    else:
        # 8 / width neighbours lie in one wide lane: shift each onto its place in the lowest byte.
        per_byte = 8 // width
        wide = _vector(8 * per_byte, LANES // per_byte)
        lanes = builder.bitcast(field, wide)
        merged = lanes
        for k in range(1, per_byte):
            merged = builder.or_(merged, builder.lshr(lanes, _constant(wide, k * (8 - width))))
        value = builder.trunc(merged, _vector(8, LANES // per_byte))
    _store(builder, value, address, nontemporal)


def _read_plane(builder: ir.IRBuilder, width: int, address: ir.Value) -> ir.Value:
    """Load 64 lanes of `width` bits as 8-bit lanes (`width`-bit ones if wider)."""
    if width >= 8:
        return _load(builder, address, _vector(width))
    if width == 1:
        return builder.zext(builder.bitcast(_load(builder, address, _I64), _vector(1)), _vector(8))
    per_byte = 8 // width
    wide = _vector(8 * per_byte, LANES // per_byte)
    packed = builder.zext(_load(builder, address, _vector(8, LANES // per_byte)), wide)
    spread = packed
    for k in range(1, per_byte):
        spread = builder.or_(spread, builder.shl(packed, _constant(wide, k * (8 - width))))
    mask = sum(((1 << width) - 1) << 8 * k for k in range(per_byte))
    return builder.bitcast(builder.and_(spread, _constant(wide, mask)), _vector(8))


def _write_field(
    builder: ir.IRBuilder, field: ir.Value, bits: int, planes: ir.Value, first: int, group: ir.Value, nontemporal: bool
) -> int:
    """Store a field of `bits` bits plane by plane; return the number of planes."""
    shift = 0
    widths = plane_widths(bits)
    for plane, width in enumerate(widths, first):
        lane_width = field.type.element.width
        part = builder.lshr(field, _constant(field.type, shift)) if shift else field
        if width < 8:
            part = builder.and_(part, _constant(part.type, (1 << width) - 1))
            part = part if lane_width == 8 else builder.trunc(part, _vector(8))
        _write_plane(builder, part, width, _plane_address(builder, planes, plane, width, group), nontemporal)
        shift += width
    return len(widths)


def _read_field(
    builder: ir.IRBuilder, bits: int, lane_width: int, planes: ir.Value, first: int, group: ir.Value
) -> ir.Value:
    """Load a field of `bits` bits into lanes of `lane_width`."""
    shift = 0
    field = None
    for plane, width in enumerate(plane_widths(bits), first):
        part = _read_plane(builder, width, _plane_address(builder, planes, plane, width, group))
        if part.type.element.width < lane_width:
            part = builder.zext(part, _vector(lane_width))
        part = builder.shl(part, _constant(part.type, shift)) if shift else part
        field = part if field is None else builder.or_(field, part)
        shift += width
    return field


def _run(builder: ir.IRBuilder, runs: ir.Value, index: ir.Value) -> list[ir.Value]:
    at = builder.add(runs, builder.mul(index, ir.Constant(_I64, RUN_BYTES)))
    return [_splat(builder, _load(builder, _add(builder, at, k), _I8)) for k in range(RUN_BYTES)]


def _exponents_of(builder: ir.IRBuilder, v: ir.Value, e_bits: int, m_bits: int) -> ir.Value:
    """Return the exponents of 64 elements as 8-bit lanes."""
    exponents = builder.lshr(v, _constant(v.type, m_bits))
    narrow = v.type.element.width == 8
    if e_bits < 8 or narrow:
        exponents = builder.and_(exponents, _constant(v.type, (1 << e_bits) - 1))
    return exponents if narrow else builder.trunc(exponents, _vector(8))


def _codes(
    builder: ir.IRBuilder, exponents: ir.Value, runs: ir.Value, n_runs: ir.Value, window: bool, code_bits: int
) -> tuple[ir.Value, ir.Value]:
    """Return the codes of 64 exponents, 0 where escaped, and the lanes that have one."""
    byte = _vector(8)
    if window:
        first, _, _ = _run(builder, runs, ir.Constant(_I64, 0))
        code = builder.sub(exponents, first)
        found = builder.icmp_unsigned("<", code, _constant(byte, 1 << code_bits))
        return builder.select(found, code, _constant(byte, 0)), found
    code_at = cgutils.alloca_once_value(builder, _constant(byte, 0))
    # Bytes of all ones or all zeros: a vector of single bits in memory would be taken apart and put together again.
    found_at = cgutils.alloca_once_value(builder, _constant(byte, 0))
    builder.store(_constant(byte, 0), code_at)
    builder.store(_constant(byte, 0), found_at)
    with cgutils.for_range(builder, n_runs) as loop:
        first, length, first_code = _run(builder, runs, loop.index)
        rank = builder.sub(exponents, first)
        inside = builder.icmp_unsigned("<", rank, length)
        code = builder.select(inside, builder.add(rank, first_code), builder.load(code_at))
        builder.store(code, code_at)
        builder.store(builder.or_(builder.sext(inside, byte), builder.load(found_at)), found_at)
    return builder.load(code_at), builder.icmp_signed("<", builder.load(found_at), _constant(byte, 0))


def _exponents(builder: ir.IRBuilder, codes: ir.Value, runs: ir.Value, n_runs: ir.Value, window: bool) -> ir.Value:
    """Return the exponents that 64 codes stand for."""
    first, _, _ = _run(builder, runs, ir.Constant(_I64, 0))
    exponents = builder.add(codes, first)
    if window:
        return exponents
    at = cgutils.alloca_once_value(builder, exponents)
    builder.store(exponents, at)
    one = ir.Constant(_I64, 1)
    with cgutils.for_range(builder, builder.sub(n_runs, one)) as loop:
        first, _, first_code = _run(builder, runs, builder.add(loop.index, one))
        reached = builder.icmp_unsigned(">=", codes, first_code)
        shifted = builder.add(codes, builder.sub(first, first_code))
        builder.store(builder.select(reached, shifted, builder.load(at)), at)
    return builder.load(at)


@intrinsic(prefer_literal=True)
def encode_group(
    context: Any, x: Any, planes: Any, group: Any, runs: Any, n_runs: Any,
    exponent_bits: Any, mantissa_bits: Any, code_bits: Any, window: Any, nontemporal: Any,
) -> Any:  # fmt: skip
    """Encode the 64 elements at address `x` as group `group` of the planes; return the mask of escaped lanes.

    `planes`: address of the planes' base addresses (u64 each); `runs`: address of the run table.
    """
    e_bits, m_bits, b, is_window, streaming = (
        t.literal_value for t in (exponent_bits, mantissa_bits, code_bits, window, nontemporal)
    )
    signature = _U64(_U64, _U64, _U64, _U64, _U64, exponent_bits, mantissa_bits, code_bits, window, nontemporal)

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        x_at, planes_at, group_index, runs_at, run_count = args[:5]
        word = _vector(1 + e_bits + m_bits)
        v = _load(builder, x_at, word)
        exponents = _exponents_of(builder, v, e_bits, m_bits)
        codes, found = _codes(builder, exponents, runs_at, run_count, is_window, b)
        n_code_planes = _write_field(builder, codes, b, planes_at, 0, group_index, streaming)
        sign = builder.and_(builder.lshr(v, _constant(word, e_bits)), _constant(word, 1 << m_bits))
        sm = builder.or_(sign, builder.and_(v, _constant(word, (1 << m_bits) - 1)))
        if m_bits + 1 <= 8 and word.element.width > 8:
            sm = builder.trunc(sm, _vector(8))
        _write_field(builder, sm, m_bits + 1, planes_at, n_code_planes, group_index, streaming)
        return builder.bitcast(builder.not_(found), _I64)

    return signature, generate


@intrinsic(prefer_literal=True)
def decode_group(
    context: Any, planes: Any, group: Any, x: Any, runs: Any, n_runs: Any,
    exponent_bits: Any, mantissa_bits: Any, code_bits: Any, window: Any, nontemporal: Any,
) -> Any:  # fmt: skip
    """Decode group `group` of the planes into the 64 elements at address `x`; escapes are left for the caller."""
    e_bits, m_bits, b, is_window, streaming = (
        t.literal_value for t in (exponent_bits, mantissa_bits, code_bits, window, nontemporal)
    )
    signature = types.void(_U64, _U64, _U64, _U64, _U64, exponent_bits, mantissa_bits, code_bits, window, nontemporal)

    def generate(numba_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        planes_at, group_index, x_at, runs_at, run_count = args[:5]
        width = 1 + e_bits + m_bits
        word = _vector(width)
        codes = _read_field(builder, b, 8, planes_at, 0, group_index)
        exponents = _exponents(builder, codes, runs_at, run_count, is_window)
        if width > 8:
            exponents = builder.zext(exponents, word)
        sm = _read_field(builder, m_bits + 1, width, planes_at, len(plane_widths(b)), group_index)
        sign = builder.and_(builder.shl(sm, _constant(word, e_bits)), _constant(word, 1 << (width - 1)))
        mantissa = builder.and_(sm, _constant(word, (1 << m_bits) - 1))
        v = builder.or_(builder.shl(exponents, _constant(word, m_bits)), builder.or_(sign, mantissa))
        _store(builder, v, x_at, streaming)
        return numba_context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def copy_group(context: Any, source: Any, target: Any, itemsize: Any, nontemporal: Any) -> Any:
    """Copy 64 elements of `itemsize` bytes from one address to another."""
    word, streaming = _vector(8 * itemsize.literal_value), nontemporal.literal_value

    def generate(numba_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        _store(builder, _load(builder, args[0], word), args[1], streaming)
        return numba_context.get_dummy_value()

    return types.void(_U64, _U64, itemsize, nontemporal), generate


@intrinsic(prefer_literal=True)
def store_escapes(
    context: Any, x: Any, mask: Any, first: Any, positions: Any, exponents: Any, exponent_bits: Any, mantissa_bits: Any
) -> Any:
    """Store position (u16, counted from `first`) and exponent (u8) of each masked lane; return how many there are.

    Whole vectors are stored, so both targets must have room for 64 entries.
    """
    e_bits, m_bits = exponent_bits.literal_value, mantissa_bits.literal_value
    signature = _U64(_U64, _U64, _U64, _U64, _U64, exponent_bits, mantissa_bits)

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        x_at, mask_bits, first_position, positions_at, exponents_at = args[:5]
        bytes_, flags = _vector(8), _vector(1)
        compress = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(bytes_, [bytes_, flags, bytes_]),
            f"llvm.experimental.vector.compress.v{LANES}i8",
        )
        escaped = builder.bitcast(mask_bits, flags)
        undefined = ir.Constant(bytes_, ir.Undefined)
        lanes = builder.call(compress, [ir.Constant(bytes_, list(range(LANES))), escaped, undefined])
        offset = _splat(builder, builder.trunc(first_position, _I16))
        _store(builder, builder.add(builder.zext(lanes, _vector(16)), offset), positions_at, False)
        values = _exponents_of(builder, _load(builder, x_at, _vector(1 + e_bits + m_bits)), e_bits, m_bits)
        _store(builder, builder.call(compress, [values, escaped, undefined]), exponents_at, False)
        return builder.ctpop(mask_bits)

    return signature, generate


@intrinsic
def lowest_bit(context: Any, mask: Any) -> Any:
    """Index of the lowest set bit of a non-zero mask."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return _U64(_U64), generate


@intrinsic(prefer_literal=True)
def load_uint(context: Any, address: Any, nbytes: Any) -> Any:
    """Load an unsigned integer of `nbytes` bytes from any address."""
    width = 8 * nbytes.literal_value

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        value = _load(builder, args[0], ir.IntType(width))
        return value if width == 64 else builder.zext(value, _I64)

    return _U64(_U64, nbytes), generate


@intrinsic(prefer_literal=True)
def store_uint(context: Any, address: Any, value: Any, nbytes: Any) -> Any:
    """Store the low `nbytes` bytes of an unsigned integer at any address."""
    width = 8 * nbytes.literal_value

    def generate(numba_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        value = args[1] if width == 64 else builder.trunc(args[1], ir.IntType(width))
        builder.store(value, builder.inttoptr(args[0], value.type.as_pointer()), align=1)
        return numba_context.get_dummy_value()

    return types.void(_U64, _U64, nbytes), generate
