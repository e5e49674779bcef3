"""What to make of a compiler's messages about a kernel."""

from __future__ import annotations

import re

_UNKNOWN = (
    re.compile(r"'([A-Za-z_]\w*)' was not declared in this scope"),
    re.compile(r"use of undeclared identifier '([A-Za-z_]\w*)'"),
    re.compile(r"there are no arguments to '([A-Za-z_]\w*)' that depend on a template parameter"),
    re.compile(r"unknown type name '([A-Za-z_]\w*)'"),
    re.compile(r"'([A-Za-z_]\w*)' does not name a type"),
)
_MISSING = re.compile(r"fatal error: '?([^':\s]+)'?(?:: No such file or directory| file not found)")
_LINE = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_HEADERS = (
    (re.compile(r"__(shfl|ballot|any|all|match|reduce|sync|activemask|threadfence)"), "sprigs/warp.h"),
    (re.compile(r"atomic"), "sprigs/atomics.h"),
    (re.compile(r"half|bfloat|bf16|^__h|^h[a-z]+$"), "sprigs/narrow_floats.h"),
    (re.compile(r"^__(exp|log|sin|cos|tan|pow)|_r[nzud]$"), "sprigs/math.h"),
)
# Names of the device's library that a kernel may ask for and that have no underscores in front.
_DEVICE_NAMES = re.compile(
    r"^(__\w+|atomic\w+|cooperative_groups|cg|nvcuda|wmma|cuda|tex\w+|surf\w+|make_\w+|h(alf|exp|log|sqrt)\w*"
    r"|\w+_(sync|rn|rz|ru|rd)|cub|thrust)$"
)


def advice(messages: str, filename: str) -> str:
    """Return a text for the person who wrote the kernel.

    Args:
        messages: what the compiler wrote, in English.
        filename: what the kernel's text is called.

    Returns:
        Each error with its line; an intrinsic that the emulator lacks is named, with the header to extend.
    """
    errors: dict[str, None] = {}
    for match in _LINE.finditer(messages):
        where = f"{match['file']}:{match['line']}"
        errors[f"{where}: {_explained(match['text'], match.group())}"] = None
    if not errors:
        return f"{filename} does not compile:\n{messages.strip()}"
    return f"{filename} does not compile:\n" + "\n".join(errors)


def _explained(text: str, line: str) -> str:
    if missing := _MISSING.search(line):
        return (
            f"there is no header {missing[1]!r} here: the emulator brings cuda_fp16.h, cuda_bf16.h and the headers that"
            " NVRTC has built in; give the folder of your own with the option -I"
        )
    for pattern in _UNKNOWN:
        if (found := pattern.search(text)) and _DEVICE_NAMES.match(found[1]):
            return (
                f"unknown intrinsic `{found[1]}`: the emulator does not know it; check the spelling, or add it to"
                f" include/{_header(found[1])} of sprigs_emulator"
            )
    return text


def _header(name: str) -> str:
    for pattern, header in _HEADERS:
        if pattern.search(name):
            return header
    return "sprigs/intrinsics.h"
