"""splitzip beside the codecs one would use instead, on the same array, with the same number of threads."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

import sprigs
from sprigs.bench import Comparison, compare

from .codebook import Codebook
from .codec import Codec, decompress
from .samples import ALICE256, load_dump, shipped_cache

Bits = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Candidate:
    """A codec as its users call it: fresh output at every call."""

    name: str
    packages: tuple[str, ...]
    encode: Callable[[Bits], Any]
    decode: Callable[[Any], Any]


def candidates(codebook: Codebook, threads: int) -> Iterator[Candidate]:
    """Yield splitzip and every installed peer, each set to `threads` threads.

    zipnn, blosc2 and lz4 as called here store no checksum of the data, so splitzip stands here without one too.
    Peers get the array's bytes in the way that suits them best: with the shuffles made for 16-bit elements where they
    have one.
    """
    for name, checksum in (("splitzip", True), ("splitzip, no checksum", False)):
        codec = Codec(codebook, threads=threads, checksum=checksum)
        yield Candidate(
            name, ("sprigs-splitzip", "numba"), _encode(codec), lambda frame: decompress(frame, threads=threads)
        )
    if _installed("zipnn", "safetensors"):
        yield _zipnn(threads)
    if _installed("zstandard"):
        import zstandard

        compressor = zstandard.ZstdCompressor(level=1, threads=threads if threads > 1 else 0)
        decompressor = zstandard.ZstdDecompressor()
        yield Candidate("zstd -1", ("zstandard",), lambda x: compressor.compress(x.data), decompressor.decompress)
    if _installed("lz4"):
        import lz4.frame

        yield Candidate("lz4", ("lz4",), lambda x: lz4.frame.compress(x.data), lz4.frame.decompress)
    if _installed("blosc2"):
        import blosc2

        def blosc(name: str, codec: Any, filters: list[Any], level: int) -> Candidate:
            options = {"codec": codec, "filters": filters, "clevel": level, "typesize": 2, "nthreads": threads}
            return Candidate(
                name,
                ("blosc2",),
                lambda x: blosc2.compress2(x, **options),
                lambda data: blosc2.decompress2(data, nthreads=threads),
            )

        yield blosc("blosc2 lz4 + bitshuffle", blosc2.Codec.LZ4, [blosc2.Filter.BITSHUFFLE], 5)
        yield blosc("blosc2 zstd + shuffle", blosc2.Codec.ZSTD, [blosc2.Filter.SHUFFLE], 1)


def measure(x: Bits, codebook: Codebook, *, threads: int = 1, rounds: int = 7) -> tuple[Comparison, Comparison]:
    """Time encoding and decoding of `x` (flat BF16 bits) by every candidate, in turn, results checked first.

    Beside the candidates stand `np.copyto`, the machine's own copy of the same array, and splitzip into a buffer that
    is reused, with and without checksum: what a serving system would do.
    """
    target = np.empty_like(x)
    encoders: dict[str, Callable[[], Any]] = {"copy": lambda: np.copyto(target, x)}
    decoders: dict[str, Callable[[], Any]] = {"copy": lambda: np.copyto(target, x)}
    packages = ["numpy"]
    decode_of = {}
    for name, checksum in (("splitzip, into a buffer", True), ("splitzip, into a buffer, no checksum", False)):
        codec = Codec(codebook, checksum=checksum, threads=threads)
        frame = np.empty(codec.max_encoded_size(x, "bf16"), np.uint8)
        size = codec.encode_into(x, frame, dtype="bf16")
        encoders[name] = _encode_into(codec, x, frame)
        decoders[name] = _decode_into(codec, frame[:size].copy(), target)
    for candidate in candidates(codebook, threads):
        # zipnn reorders its input in place, so each candidate has a copy of its own, remade at every call of zipnn.
        encoders[candidate.name] = _call(candidate.encode, x)
        decoders[candidate.name] = _call(candidate.decode, candidate.encode(x.copy()))
        decode_of[candidate.name] = candidate.decode
        packages += candidate.packages

    def same(results: dict[str, Any]) -> None:
        for name, result in results.items():
            restored = decode_of[name](result) if name in decode_of else result
            assert name == "copy" or isinstance(result, int) or _equal(restored, x), f"{name} is not lossless"

    def decoded(results: dict[str, Any]) -> None:
        for name, result in results.items():
            assert name == "copy" or _equal(result, x), f"{name} does not restore the array"

    def in_turn(functions: dict[str, Callable[[], Any]], check: Callable[[dict[str, Any]], None]) -> Comparison:
        return compare(
            functions, check=check, rounds=rounds, warmup=1, nbytes=x.nbytes, threads=threads, packages=packages
        )

    return in_turn(encoders, same), in_turn(decoders, decoded)


def ratios(x: Bits, codebook: Codebook) -> dict[str, float]:
    """Raw / encoded bytes of every candidate on `x`."""
    return {c.name: x.nbytes / _size(c.encode(x.copy())) for c in candidates(codebook, 1)}


def benchmark_input(mebibytes: float) -> tuple[Bits, Bits, str]:
    """Return (array of that size, one untiled copy, what it is).

    A tile is longer than any peer's window, so that none finds the repetition.
    """
    try:
        cache, name = load_dump(ALICE256), "SmolLM2-135M, 256 tokens of Alice"
    except sprigs.DataUnavailable:
        cache, name = shipped_cache(), "SmolLM2-135M, 64 tokens of Alice"
    cache = cache.reshape(-1)
    return np.resize(cache, int(mebibytes * 2**20) // 2), cache, name


@click.command()
@click.option("--mib", default=64.0, show_default=True, help="Size of the array in MiB (the cache is tiled).")
@click.option("--threads", default=1, show_default=True, help="Threads for every codec that takes them.")
@click.option("--rounds", default=7, show_default=True, help="Measurements of each codec, taken in turn.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the measurements here, as JSON.")
def bench(mib: float, threads: int, rounds: int, output: Path | None) -> None:
    """Encode and decode a real KV cache beside the installed peers (zipnn, zstd, lz4, blosc2)."""
    from rich.console import Console

    x, one, name = benchmark_input(mib)
    codebook = Codebook.from_samples([one], "bf16")
    encoding, decoding = measure(x, codebook, threads=threads, rounds=rounds)
    ratio = ratios(one, codebook)
    console = Console(width=None if Console().is_terminal else 120)
    console.print(f"{name}, tiled to {x.nbytes / 2**20:.0f} MiB of BF16; {threads} thread(s); every codec bit-exact")
    console.print(summary_table(encoding, decoding, ratio))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        measured = {"input": name, "ratios": ratio, "encode": encoding.to_dict(), "decode": decoding.to_dict()}
        output.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def summary_table(encoding: Comparison, decoding: Comparison, ratio: dict[str, float]) -> Any:
    """Return a rich table: ratio, GB/s, and speed relative to the machine's own copy."""
    from rich.table import Table

    table = Table()
    for column in ("", "ratio", "encode GB/s", "x copy", "decode GB/s", "x copy"):
        table.add_column(column, justify="left" if not column else "right", overflow="fold")
    for name in encoding.rates:
        table.add_row(
            name,
            f"{ratio[name]:.3f}" if name in ratio else "",
            *(
                cell
                for side in (encoding, decoding)
                for cell in (f"{side.rates[name] / 1e9:.2f}", f"{1 / side.ratios[name].ratio:.2f}")
            ),
        )
    return table


def _zipnn(threads: int) -> Candidate:
    import zipnn

    def coder() -> Any:
        return zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=threads)

    return Candidate(
        "zipnn",
        ("zipnn",),
        # It reorders the bytes it is given, in place: it must get its own copy, here within its time (about 1 % of it).
        lambda x: coder().compress(bytearray(x.data)),
        lambda data: coder().decompress(data),
    )


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _encode(codec: Codec) -> Callable[[Bits], Any]:
    return lambda x: codec.encode(x, dtype="bf16")


def _encode_into(codec: Codec, x: Bits, frame: npt.NDArray[np.uint8]) -> Callable[[], int]:
    return lambda: codec.encode_into(x, frame, dtype="bf16")


def _decode_into(codec: Codec, frame: npt.NDArray[np.uint8], target: Bits) -> Callable[[], Bits]:
    return lambda: codec.decode(frame, out=target)


def _call(function: Callable[[Any], Any], argument: Any) -> Callable[[], Any]:
    return lambda: function(argument)


def _size(encoded: Any) -> int:
    return encoded.nbytes if hasattr(encoded, "nbytes") else len(encoded)


def _equal(restored: Any, x: Bits) -> bool:
    data = (
        restored.reshape(-1).view(np.uint8) if isinstance(restored, np.ndarray) else np.frombuffer(restored, np.uint8)
    )
    return bool(np.array_equal(data, x.view(np.uint8)))
