"""The structures of `runtime/report.h` and `include/sprigs/abi.h`, as ctypes sees them."""

from __future__ import annotations

import ctypes as c
from enum import IntEnum, IntFlag
from typing import ClassVar


class Outcome(IntEnum):
    """How a launch ended."""

    FINE = 0
    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    INTEGER_OVERFLOW = 3
    DIVISION = 4
    SHIFT = 5
    BAD_INDEX = 6
    WILD = 7
    STACK_OVERFLOW = 8
    SLACK_WRITTEN = 9
    RACE = 10
    UNINITIALISED = 11
    UNWRITTEN = 12
    DEADLOCK = 13
    LIVELOCK = 14
    LANE_OUTSIDE_MASK = 15
    SOURCE_OUTSIDE_MASK = 16
    BARRIERS_DIFFER = 17
    ASSERTION = 18
    TRAP = 19
    TIMEOUT = 20
    RESOURCES = 21
    UNFINISHED = 22


class Space(IntEnum):
    """Where an address lies."""

    NOWHERE = 0
    ARRAY = 1
    STATIC_SHARED = 2
    DYNAMIC_SHARED = 3
    GLOBAL = 4


class Access(IntFlag):
    """What was done to it."""

    READ = 1
    WRITE = 2
    ATOMIC = 4
    VOLATILE = 8


class ThreadState(IntEnum):
    """What a thread of a live block is at."""

    RUNNING = 0
    AT_BARRIER = 1
    AT_COLLECTIVE = 2
    SPINNING = 3
    RETURNED = 4


BARRIERS = ("__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or")
COLLECTIVES = (
    "__syncwarp", "a shuffle", "__ballot_sync", "__any_sync", "__all_sync", "__match_any_sync", "__match_all_sync",
    "__activemask", *["__reduce_add_sync"], *["__reduce_min_sync", "__reduce_max_sync"] * 2, "__reduce_and_sync",
    "__reduce_or_sync", "__reduce_xor_sync",
)  # fmt: skip

MOST_WAITERS = 4096


class SharedVariable(c.Structure):
    """A `__shared__` variable."""

    _fields_: ClassVar = [
        ("name", c.c_char_p), ("offset", c.c_uint32), ("bytes", c.c_uint32), ("element", c.c_uint32),
        ("line", c.c_uint32),
    ]  # fmt: skip


class GlobalVariable(c.Structure):
    """A `__device__` or `__constant__` variable."""

    _fields_: ClassVar = [
        ("name", c.c_char_p), ("address", c.c_void_p), ("bytes", c.c_size_t), ("element", c.c_size_t),
        ("kind", c.c_char),
    ]  # fmt: skip


class Parameter(c.Structure):
    """A kernel's parameter."""

    _fields_: ClassVar = [
        ("bytes", c.c_size_t), ("pointee_bytes", c.c_size_t), ("kind", c.c_char), ("element_kind", c.c_char),
        ("pointee_const", c.c_char), ("element_bytes", c.c_size_t),
    ]  # fmt: skip


class Kernel(c.Structure):
    """A kernel's entry."""

    _fields_: ClassVar = [
        ("name", c.c_char_p), ("run", c.c_void_p), ("parameters", c.POINTER(Parameter)), ("count", c.c_uint32),
        ("most_threads", c.c_uint32),
    ]  # fmt: skip


class Module(c.Structure):
    """What a compiled file holds."""

    _fields_: ClassVar = [
        ("kernels", c.POINTER(Kernel)), ("kernel_count", c.c_uint32), ("globals", c.POINTER(GlobalVariable)),
        ("global_count", c.c_uint32), ("dynamic_pointers", c.c_void_p), ("dynamic_pointer_count", c.c_uint32),
        ("shared_count", c.c_uint32), ("shared_bytes", c.c_uint32), ("shared", SharedVariable * 256),
    ]  # fmt: skip


class Where(c.Structure):
    """One end of a fault."""

    _fields_: ClassVar = [
        ("block", c.c_uint32 * 3), ("thread", c.c_uint32 * 3), ("pc", c.c_uint64), ("line", c.c_uint32),
        ("access", c.c_uint32), ("file", c.c_char * 256),
    ]  # fmt: skip


class Waiter(c.Structure):
    """A thread of a live block."""

    _fields_: ClassVar = [
        ("block", c.c_uint32 * 3), ("thread", c.c_uint32 * 3), ("state", c.c_uint32), ("operation", c.c_uint32),
        ("mask", c.c_uint32), ("line", c.c_uint32), ("pc", c.c_uint64),
    ]  # fmt: skip


class Report(c.Structure):
    """What a launch tells."""

    _fields_: ClassVar = [
        ("outcome", c.c_uint32), ("space", c.c_uint32), ("array", c.c_uint32), ("access_bytes", c.c_uint32),
        ("offset", c.c_longlong), ("extent", c.c_uint64), ("element", c.c_uint64), ("name", c.c_char * 128),
        ("detail", c.c_char * 512), ("here", Where), ("other", Where), ("waiters", c.c_uint32),
        ("unstarted_blocks", c.c_uint32), ("waiter", Waiter * MOST_WAITERS),
    ]  # fmt: skip


class Array(c.Structure):
    """Memory of the caller that the kernel may reach."""

    _fields_: ClassVar = [
        ("host", c.c_void_p), ("bytes", c.c_uint64), ("residue", c.c_uint32), ("read_only", c.c_uint32),
        ("poisoned", c.c_uint32),
    ]  # fmt: skip


class Argument(c.Structure):
    """One argument: a scalar's value, or a place in an array."""

    _fields_: ClassVar = [("value", c.c_void_p), ("array", c.c_int), ("offset", c.c_uint64)]


class Range(c.Structure):
    """Code, from `low` up to `high`."""

    _fields_: ClassVar = [("low", c.c_uint64), ("high", c.c_uint64)]


class Launch(c.Structure):
    """What a launch is given."""

    _fields_: ClassVar = [
        ("module", c.c_void_p), ("kernel", c.c_uint32), ("grid", c.c_uint32 * 3), ("block", c.c_uint32 * 3),
        ("dynamic_bytes", c.c_uint32), ("interleave", c.c_uint32), ("checking", c.c_uint32),
        ("stack_bytes", c.c_uint32), ("seed", c.c_uint64), ("delay_block", c.c_longlong), ("timeout", c.c_double),
        ("arrays", c.POINTER(Array)), ("array_count", c.c_uint32), ("argument_count", c.c_uint32),
        ("arguments", c.POINTER(Argument)), ("same_value", c.POINTER(Range)), ("same_value_count", c.c_uint32),
    ]  # fmt: skip
