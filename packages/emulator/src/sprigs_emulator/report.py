"""From the runtime's bare facts to an error that reads well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import _abi
from ._abi import Access, Outcome, Space, ThreadState
from ._arguments import Allocation
from ._library import Library
from .errors import (
    EmulatorError,
    Fault,
    InitcheckError,
    KernelAssertionError,
    LaunchError,
    MemcheckError,
    RacecheckError,
    SynccheckError,
)

Coordinates = tuple[int, int, int]


@dataclass(frozen=True)
class _Scene:
    """Everything a report is written from."""

    report: _abi.Report
    library: Library
    allocations: Sequence[Allocation]
    kernel: str
    seed: int
    block_shape: Coordinates


def error_from(
    report: _abi.Report,
    library: Library,
    allocations: Sequence[Allocation],
    kernel: str,
    seed: int,
    block_shape: Coordinates,
) -> EmulatorError:
    """Return the error that a launch ended with.

    Args:
        report: what the runtime wrote.
        library: where the kernel's code and text are.
        allocations: the launch's arrays, by number.
        kernel: the kernel's name.
        seed: the seed of the schedule.
        block_shape: the block's dimensions.
    """
    scene = _Scene(report, library, allocations, kernel, seed, block_shape)
    outcome = Outcome(report.outcome)
    fault = _fault(scene)
    if outcome in (Outcome.DEADLOCK, Outcome.LIVELOCK, Outcome.BARRIERS_DIFFER):
        return _stuck(scene, outcome, fault)
    kind, headline, remedy = _WRITERS[outcome](scene, fault)
    return kind(_text(scene, _NAMES[kind], headline, fault, remedy), fault)


_NAMES: dict[type[EmulatorError], str] = {
    MemcheckError: "memcheck",
    RacecheckError: "racecheck",
    InitcheckError: "initcheck",
    SynccheckError: "synccheck",
    LaunchError: "launch",
    KernelAssertionError: "assert",
}


def _text(scene: _Scene, check: str, headline: str, fault: Fault, remedy: str) -> str:
    lines = [f"{check}: {headline}", f"  in kernel `{scene.kernel}`, seed {scene.seed}"]
    shown: list[int] = []
    for line in (fault.line, fault.other_line, *fault.lines):
        if line and line not in shown:
            shown.append(line)
    file = fault.file or scene.library.source.filename
    for line in shown:
        lines.append(f"  {file}:{line}: {_source_line(scene, file, line)}")
    return "\n".join([*lines, f"  {remedy}"])


def _source_line(scene: _Scene, file: str, line: int) -> str:
    if file != scene.library.source.filename:
        return ""
    text = scene.library.source.text.splitlines()
    return text[line - 1].strip() if 0 < line <= len(text) else ""


def _place(scene: _Scene, where: _abi.Where) -> tuple[str | None, int | None]:
    """File and line: of the code address if that is the user's code, else of the call that stands in the report."""
    if where.pc and (found := scene.library.lines.find(where.pc)):
        return found
    return where.file.decode(errors="replace") or None, where.line or None


def _access(flags: int) -> str | None:
    access = Access(flags)
    if Access.ATOMIC in access:
        return "atomic"
    kind = "write" if Access.WRITE in access else "read" if Access.READ in access else None
    return f"volatile {kind}" if Access.VOLATILE in access and kind else kind


def _fault(scene: _Scene) -> Fault:
    report = scene.report
    file, line = _place(scene, report.here)
    fault = Fault(
        kernel=scene.kernel,
        seed=scene.seed,
        file=file or (scene.library.source.filename if line else None),
        line=line,
        block=_coordinates(report.here.block),
        thread=_coordinates(report.here.thread),
        access=_access(report.here.access),
    )
    if report.space == Space.ARRAY:
        name, index, _ = scene.allocations[report.array].locate(report.offset)
        fault = replace(fault, array=name, index=index)
    elif report.space != Space.NOWHERE:
        fault = replace(fault, array=report.name.decode(), index=report.offset // max(report.element, 1))
    if report.outcome == Outcome.RACE and report.other.access:
        other = report.other
        fault = replace(
            fault,
            other_block=_coordinates(other.block),
            other_thread=_coordinates(other.thread),
            other_line=_place(scene, other)[1],
            other_access=_access(other.access),
        )
    return fault


def _coordinates(values: Sequence[int]) -> Coordinates:
    return values[0], values[1], values[2]


def _who(block: Coordinates | None, thread: Coordinates | None) -> str:
    return f"thread {_short(thread)} of block {_short(block)}"


def _short(coordinates: Coordinates | None) -> str:
    return str(coordinates).replace(" ", "")


def _target(scene: _Scene, fault: Fault) -> str:
    report = scene.report
    if report.space == Space.NOWHERE or fault.array is None:
        return report.detail.decode() or "memory"
    if report.space == Space.DYNAMIC_SHARED:
        return f"byte {report.offset} of dynamic shared memory"
    shared = "shared " if report.space == Space.STATIC_SHARED else ""
    return f"{shared}{fault.array}[{fault.index}]"


def _length(scene: _Scene, fault: Fault) -> str:
    report = scene.report
    if report.space == Space.ARRAY:
        name, _, length = scene.allocations[report.array].locate(report.offset)
        return f"{name} has {length} elements"
    if report.space == Space.DYNAMIC_SHARED:
        return f"the launch gives shared={report.extent} bytes"
    return f"{fault.array} has {report.extent // max(report.element, 1)} elements"


_DOES = {
    "read": "reads", "write": "writes", "atomic": "updates atomically", "volatile read": "reads (volatile)",
    "volatile write": "writes (volatile)", None: "accesses",
}  # fmt: skip
_Written = tuple[type[EmulatorError], str, str]


def _out_of_bounds(scene: _Scene, fault: Fault) -> _Written:
    headline = (
        f"{_who(fault.block, fault.thread)} {_DOES[fault.access]} {_target(scene, fault)}, out of bounds:"
        f" {_length(scene, fault)}"
    )
    if scene.report.space == Space.DYNAMIC_SHARED:
        return MemcheckError, headline, "Pass shared= as many bytes as the kernel lays out in its extern array."
    return MemcheckError, headline, "Compare the index with the length before the access, or mend the launch's size."


def _misaligned(scene: _Scene, fault: Fault) -> _Written:
    detail = scene.report.detail.decode() or "a vector access to an address that is no multiple of its size"
    place = f" near {_target(scene, fault)}" if fault.array else ""
    headline = f"{_who(fault.block, fault.thread)}, misaligned access{place}: {detail}"
    return MemcheckError, headline, "Let the index of a vector access be a multiple of its width, or load scalars."


def _overflow(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)}: signed integer overflow: {scene.report.detail.decode()}"
    return (
        MemcheckError,
        headline,
        "Compute the index in long long or size_t: convert one operand before the operation.",
    )


def _division(scene: _Scene, fault: Fault) -> _Written:
    detail = scene.report.detail.decode()
    headline = (
        f"{_who(fault.block, fault.thread)}: integer division by zero or overflow{': ' if detail else ''}{detail}"
    )
    return MemcheckError, headline, "Test the divisor: a device returns an unspecified number here and goes on."


def _shift(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)}: {scene.report.detail.decode()} is undefined"
    return MemcheckError, headline, "Keep the shift below the width: device and host differ beyond it."


def _bad_index(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)}, out of bounds: {scene.report.detail.decode()}"
    return MemcheckError, headline, "Compare the index with the array's length before the access."


def _wild(scene: _Scene, fault: Fault) -> _Written:
    detail = scene.report.detail.decode()
    what = f"{_target(scene, fault)} of another block" if fault.array else detail
    headline = f"{_who(fault.block, fault.thread)} {_DOES[fault.access]} where no array is: {what}"
    return MemcheckError, headline, "Follow the pointer back: it is null, uninitialised, or was moved far outside."


def _stack_overflow(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)} needs more stack for local variables and calls than it has"
    return LaunchError, headline, "Pass a larger stack= (bytes per thread), or end the recursion."


def _slack_written(scene: _Scene, fault: Fault) -> _Written:
    headline = f"some thread wrote {_target(scene, fault)}, out of bounds: {_length(scene, fault)}"
    return MemcheckError, headline, 'Launch with checks="all" to see which thread and line.'


def _race(scene: _Scene, fault: Fault) -> _Written:
    detail = scene.report.detail.decode()
    other = "another thread"
    if fault.other_thread is not None:
        at = f" at line {fault.other_line}" if fault.other_line else ""
        other = f"{_who(fault.other_block, fault.other_thread)} {_DOES[fault.other_access]} it{at}"
    at = f" at line {fault.line}" if fault.line else ""
    headline = (
        f"{_who(fault.block, fault.thread)} {_DOES[fault.access]} {_target(scene, fault)}{at}, and {other}:"
        f" nothing orders the two{'; ' if detail else ''}{detail}"
    )
    return RacecheckError, headline, _race_advice(scene, fault)


def _race_advice(scene: _Scene, fault: Fault) -> str:
    atomic = [access == "atomic" for access in (fault.access, fault.other_access)]
    flag = [access is not None and "volatile" in access for access in (fault.access, fault.other_access)]
    if any(atomic) and not all(atomic):
        return "Make both accesses atomic, or put a barrier between them."
    if fault.block != fault.other_block:
        return (
            "Blocks meet only through atomics: publish the data by __threadfence() and then a volatile or atomic flag"
            " that the reader tests first, or split the kernel in two."
        )
    width = scene.block_shape
    rank = [t[0] + width[0] * (t[1] + width[1] * t[2]) for t in (fault.thread, fault.other_thread) if t is not None]
    if len(rank) == 2 and rank[0] // 32 == rank[1] // 32:
        note = " (volatile does not order lanes)" if any(flag) else ""
        return f"The two are lanes of one warp: put __syncwarp() or __syncthreads() between the accesses{note}."
    return "Put __syncthreads() between the two accesses, where every thread of the block passes."


def _uninitialised(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)} reads {_target(scene, fault)} before anything was written to it"
    return InitcheckError, headline, "Write the element first, and put a barrier between writing and reading."


def _unwritten(scene: _Scene, fault: Fault) -> _Written:
    headline = f"no thread wrote {_target(scene, fault)}, though {fault.array} is declared written_fully"
    return InitcheckError, headline, "Cover the tail: launch ceil(n / block) blocks, or loop with a grid stride."


def _outside_mask(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)}: {scene.report.detail.decode()}"
    if scene.report.outcome == Outcome.LANE_OUTSIDE_MASK:
        return SynccheckError, headline, "Call with a mask that names the calling lanes: compute it before the branch."
    return (
        SynccheckError,
        headline,
        "Name the source in the mask, or pass width= so that sources stay among the callers.",
    )


def _assertion(scene: _Scene, fault: Fault) -> _Written:
    return (
        KernelAssertionError,
        f"{_who(fault.block, fault.thread)}: {scene.report.detail.decode()}",
        ("The kernel's own assertion failed."),
    )


def _trap(scene: _Scene, fault: Fault) -> _Written:
    return KernelAssertionError, f"{_who(fault.block, fault.thread)} reached __trap()", "The kernel gave up by itself."


def _timeout(scene: _Scene, fault: Fault) -> _Written:
    headline = f"{_who(fault.block, fault.thread)} ran on without ever meeting another thread"
    return (
        LaunchError,
        headline,
        "End its loop, poll a volatile flag instead of a plain one, or pass a longer timeout=.",
    )


def _resources(scene: _Scene, fault: Fault) -> _Written:
    return LaunchError, scene.report.detail.decode(), "Launch less at once."


_WRITERS = {
    Outcome.OUT_OF_BOUNDS: _out_of_bounds,
    Outcome.MISALIGNED: _misaligned,
    Outcome.INTEGER_OVERFLOW: _overflow,
    Outcome.DIVISION: _division,
    Outcome.SHIFT: _shift,
    Outcome.BAD_INDEX: _bad_index,
    Outcome.WILD: _wild,
    Outcome.STACK_OVERFLOW: _stack_overflow,
    Outcome.SLACK_WRITTEN: _slack_written,
    Outcome.RACE: _race,
    Outcome.UNINITIALISED: _uninitialised,
    Outcome.UNWRITTEN: _unwritten,
    Outcome.LANE_OUTSIDE_MASK: _outside_mask,
    Outcome.SOURCE_OUTSIDE_MASK: _outside_mask,
    Outcome.ASSERTION: _assertion,
    Outcome.TRAP: _trap,
    Outcome.TIMEOUT: _timeout,
    Outcome.RESOURCES: _resources,
}


def _stuck(scene: _Scene, outcome: Outcome, fault: Fault) -> SynccheckError:
    """Who waits where, and who has returned."""
    report = scene.report
    groups: dict[tuple[Coordinates, int, int, int, int], list[int]] = {}
    width = scene.block_shape
    for waiter in report.waiter[: min(report.waiters, _abi.MOST_WAITERS)]:
        x, y, z = waiter.thread
        state = ThreadState(waiter.state)
        told = state in (ThreadState.AT_BARRIER, ThreadState.AT_COLLECTIVE)
        where = (waiter.operation, waiter.line) if told else (0, 0)
        if state == ThreadState.SPINNING:
            found = scene.library.lines.find(waiter.pc) if waiter.pc else None
            where = (0, found[1] if found else waiter.line)
        mask = waiter.mask if state == ThreadState.AT_COLLECTIVE else 0
        group = (_coordinates(waiter.block), waiter.state, *where, mask)
        groups.setdefault(group, []).append(x + width[0] * (y + width[1] * z))
    states = {ThreadState(state) for _, state, _, _, _ in groups}
    headline, remedy = _diagnosis(outcome, groups, states, report.unstarted_blocks)
    lines = tuple(dict.fromkeys(line for _, _, _, line, _ in sorted(groups, key=_waiting_first) if line))
    waiting = next(iter(sorted(groups, key=_waiting_first)))
    fault = replace(
        fault, block=waiting[0], thread=_unrank(groups[waiting][0], width), line=lines[0] if lines else None,
        file=scene.library.source.filename, lines=lines, array=None, index=None, access=None,
    )  # fmt: skip
    text = _text(scene, "synccheck", headline, fault, remedy)
    return SynccheckError(text + "\n" + "\n".join(_group_lines(groups)), fault)


def _waiting_first(group: tuple[Coordinates, int, int, int, int]) -> tuple[bool, Coordinates, int]:
    """Those at a barrier or collective before those who spin, run or have returned."""
    block, state, _, line, _ = group
    return state not in (ThreadState.AT_BARRIER, ThreadState.AT_COLLECTIVE), block, line


def _unrank(rank: int, shape: Coordinates) -> Coordinates:
    return rank % shape[0], rank // shape[0] % shape[1], rank // shape[0] // shape[1]


def _diagnosis(
    outcome: Outcome,
    groups: dict[tuple[Coordinates, int, int, int, int], list[int]],
    states: set[ThreadState],
    unstarted: int,
) -> tuple[str, str]:
    if outcome == Outcome.LIVELOCK:
        if unstarted:
            return (
                f"threads spin on something that never comes, while {unstarted} blocks wait for a free place",
                "Do not wait for a block that may not have started: take the block's number from an atomic ticket, or"
                " launch with interleave= at least the number of blocks that must be alive together.",
            )
        return (
            "threads spin on something that never comes, and no other thread can run",
            "See who was to raise the flag, and whether it can before it waits itself.",
        )
    if outcome == Outcome.BARRIERS_DIFFER:
        return (
            "the threads of a block wait at different barriers",
            "Let all threads of the block pass the same __syncthreads(): move it out of the branch.",
        )
    masks: dict[tuple[Coordinates, int], set[int]] = {}
    for block, state, _, line, mask in groups:
        if state == ThreadState.AT_COLLECTIVE:
            masks.setdefault((block, line), set()).add(mask)
    if any(len(found) > 1 for found in masks.values()):
        return (
            "lanes of one warp call the same collective with different masks",
            "Compute the mask once, before the branch, so that all the lanes it names pass the same one.",
        )
    if ThreadState.AT_BARRIER in states and ThreadState.AT_COLLECTIVE not in states:
        return (
            "a barrier is reached by part of the block, and nobody else can run",
            "Let every thread of the block pass the barrier: move it out of the branch, and return after it.",
        )
    return (
        "a warp collective waits for lanes of its mask that never come, and nobody else can run",
        "Name only the lanes that take the branch, or move the collective out of it.",
    )


def _group_lines(groups: dict[tuple[Coordinates, int, int, int, int], list[int]], most: int = 12) -> list[str]:
    lines: list[str] = []
    for (block, state, operation, line, mask), ranks in groups.items():
        if len(lines) == most:
            lines.append("  ...")
            break
        match ThreadState(state):
            case ThreadState.AT_BARRIER:
                doing = f"wait at {_abi.BARRIERS[operation]} in line {line}"
            case ThreadState.AT_COLLECTIVE:
                doing = f"wait at {_abi.COLLECTIVES[operation]} in line {line} with mask 0x{mask:08x}"
            case ThreadState.SPINNING:
                doing = f"spin in line {line}" if line else "spin"
            case ThreadState.RETURNED:
                doing = "have returned"
            case _:
                doing = "could run"
        lines.append(f"  block {_short(block)}: threads {_spans(sorted(ranks))} {doing}")
    return lines


def _spans(ranks: list[int]) -> str:
    """0-15,17 for sorted numbers."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:8]]
    return ",".join(shown) + (",..." if len(spans) > 8 else "")
