"""The CUDA codec on a device: the CPU's bytes, then raw-data rates beside a copy of the same array.

Run by `tools/gpu_check.py`; `check()` yields its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sprigs_splitzip import Codebook, Codec, cuda, kernels
from sprigs_splitzip.floats import BF16, E4M3FN, E5M2, FP16, FP32, FloatFormat
from sprigs_splitzip.format import sections
from sprigs_splitzip.samples import shipped_cache

SIZES_MIB = (1, 16, 256, 1024)
PAPER = {"encode": 613.3, "decode": 2181.8}


def check() -> Iterator[dict[str, Any]]:
    """Yield correctness first; rates only of what is correct."""
    failures = [name for name, bits, form, book in cases() if not same_bytes(bits, form, book)]
    yield {
        "name": "bytes equal to the CPU's",
        "ok": not failures,
        "figure": f"{len(list(cases()))} cases" if not failures else f"differ: {', '.join(failures)}",
    }
    if failures:
        return
    flat = shipped_cache().reshape(-1)
    for mib in SIZES_MIB:
        yield from rates(BF16, 4, np.resize(flat, mib << 19), f"bf16, 4 bits, {mib} MiB")
    yield from rates(BF16, 3, np.resize(flat, 256 << 19), "bf16, 3 bits, 256 MiB")
    e5m2 = flat.view(BF16.dtype).astype(E5M2.dtype).view(np.uint8)
    yield from rates(E5M2, 4, np.resize(e5m2, 256 << 20), "e5m2, 4 bits, 256 MiB")


def cases() -> Iterator[tuple[str, np.ndarray[Any, Any], FloatFormat, Codebook]]:
    """Yield real data, every pattern, random bits, all escapes, and tails."""
    cache = shipped_cache().reshape(-1)
    for bits in (3, 4):
        yield f"cache, {bits} bits", cache, BF16, Codebook.from_samples([cache], "bf16", code_bits=bits)
        yield (
            f"patterns, {bits} bits",
            np.arange(65536, dtype=np.uint16),
            BF16,
            Codebook("bf16", range(1 << bits), bits),
        )
    zeros = np.zeros(100_000, np.uint16)
    yield "all escape", zeros, BF16, Codebook("bf16", range(113, 129))
    generator = np.random.default_rng(0)
    for form in (BF16, FP16, FP32, E5M2, E4M3FN):
        top = form.n_exponents
        for n in (1, 7, 9, 2047, 8193, 100_003):
            bits = generator.integers(0, 256, n * form.itemsize, np.uint8).view(form.bits_dtype)
            yield f"{form.name} random {n}", bits, form, Codebook(form, [0, *range(top - 15, top)])


def same_bytes(bits: np.ndarray[Any, Any], form: FloatFormat, book: Codebook) -> bool:
    """Whether both encoders write what the CPU writes, and the decoder reads it back."""
    import cupy

    expected = Codec(book, checksum=False, min_gain=-math.inf, backend="numpy").encode(bits, dtype=form)
    payload = expected.buffer[expected.info.header_size :]
    layout = sections(form, book.code_bits, bits.size, 13)
    x = cupy.asarray(bits.view(np.uint8))
    results = []
    for encode in (kernels.encode, single_pass):
        out = cupy.empty(layout.payload_size(bits.size), "uint8")
        found = encode(cuda.gpu(), x, book, layout, bits.size, 13, out, bits.size)
        results.append(found == expected.n_escapes and np.array_equal(out[: payload.size].get(), payload))
    back = cupy.empty_like(x)
    kernels.decode(cuda.gpu(), cupy.asarray(payload), book, layout, bits.size, 13, expected.n_escapes, back)
    return all(results) and np.array_equal(back.get(), bits.view(np.uint8))


_workspace = kernels.Workspace()


def single_pass(device: Any, *arguments: Any) -> int | None:
    return kernels.encode_single_pass(device, *arguments, _workspace)


def rates(form: FloatFormat, code_bits: int, bits: np.ndarray[Any, Any], label: str) -> Iterator[dict[str, Any]]:
    """Yield raw GB/s of both encoders and the decoder, as a share of what a copy's bandwidth allows."""
    import cupy

    book = Codebook.from_samples([bits[: 1 << 20]], form, code_bits=code_bits)
    layout = sections(form, code_bits, bits.size, 13)
    limit = layout.max_escapes(bits.nbytes)
    x = cupy.asarray(bits.view(np.uint8))
    other = cupy.empty_like(x)
    payload = cupy.empty(layout.payload_size(limit), "uint8")
    found = kernels.encode(cuda.gpu(), x, book, layout, bits.size, 13, payload, limit)
    if found is None:
        yield {"name": label, "ok": False, "figure": "does not compress"}
        return
    work: dict[str, Callable[[], object]] = {
        "encode": lambda: kernels.encode(cuda.gpu(), x, book, layout, bits.size, 13, payload, limit),
        "encode, single pass": lambda: single_pass(cuda.gpu(), x, book, layout, bits.size, 13, payload, limit),
        "decode": lambda: kernels.decode(cuda.gpu(), payload, book, layout, bits.size, 13, found, other),
    }
    copy = seconds(lambda: cupy.copyto(other, x))
    bandwidth = 2 * bits.nbytes / copy
    floor = (bits.nbytes + layout.payload_size(found)) / bandwidth
    yield {"name": f"{label}: copy", "ok": True, "figure": f"{bandwidth / 1e9:.0f} GB/s read and written"}
    for name, function in work.items():
        spent = seconds(function)
        told = f"{bits.nbytes / spent / 1e9:.0f} GB/s of raw data, {100 * floor / spent:.0f} % of the floor"
        paper = PAPER.get(name.split(",")[0]) if form is BF16 and code_bits == 4 else None
        yield {
            "name": f"{label}: {name}",
            "ok": True,
            "figure": told + (f" (paper {paper:g})" if paper else ""),
            "gigabytes_per_second": bits.nbytes / spent / 1e9,
        }


def seconds(function: Callable[[], object], rounds: int = 15) -> float:
    """Return the median time of a call by the device's clock, after warming up."""
    import cupy

    spent = []
    for turn in range(rounds + 3):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function()
        stop.record()
        stop.synchronize()
        if turn >= 3:
            spent.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(np.median(spent))
