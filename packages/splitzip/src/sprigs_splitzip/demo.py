"""The first thing a user runs: a real KV cache, compressed, compared, and the answer to "does it pay on my link?"."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from .backends import has_numba
from .bank import CodebookBank
from .bench import candidates, measure, ratios, summary_table
from .codec import Codec, decompress
from .errors import SplitZipError
from .samples import shipped_bank, shipped_cache
from .statistics import best_ratio, exponent_histogram, report
from .transfer import breakeven_bandwidth, pipelined_speedup, serial_speedup

Bits = npt.NDArray[np.uint16]

SPEED_BYTES = 1 << 24

LINKS = {
    "1 Gb/s Ethernet": 0.125e9,
    "10 Gb/s Ethernet": 1.25e9,
    "25 Gb/s Ethernet": 3.125e9,
    "100 Gb/s RDMA": 12.5e9,
    "400 Gb/s RDMA": 50e9,
    "NVLink, 450 GB/s": 450e9,
}


@click.command()
@click.option(
    "--output",
    "-o",
    default="splitzip-demo.png",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The picture.",
)
@click.option("--threads", default=1, show_default=True, help="Threads for every codec.")
@click.option("--rounds", default=5, show_default=True, help="Measurements of each codec, taken in turn.")
def demo(output: Path, threads: int, rounds: int) -> None:
    """Compress a real KV cache bit-exactly: ratio, speed beside peers, and on which links it pays."""
    from rich.console import Console

    began = time.perf_counter()
    console = Console(width=None if Console().is_terminal else 110, markup=False, highlight=False)
    cache = shipped_cache()
    banks = {bits: shipped_bank(bits) for bits in (4, 3)}

    console.rule("A real KV cache")
    layers, _, tokens, heads, width = cache.shape
    console.print(
        f"SmolLM2-135M reading the opening of Alice's Adventures in Wonderland: {layers} layers x (K, V) x {tokens} "
        f"tokens x {heads} heads x {width}, BF16, {cache.nbytes} bytes. The codebooks were calibrated on another text."
    )
    console.print(str(report(cache, "bf16")))

    console.rule("Bit-exact")
    console.print(_exactness(cache, banks))

    console.rule("Ratio by layer, K and V")
    table = layer_ratios(cache, banks)
    console.print(_layer_table(table))

    console.rule("Speed")
    if not has_numba():
        console.print("numba is not installed, so this is the plain NumPy path; pip install 'sprigs-splitzip[fast]'")
    flat = cache.reshape(-1)
    codebook = banks[4]["default"]
    # Tiled beyond the caches, and each tile longer than any peer's window; the ratio is that of the cache itself.
    tiled = np.resize(flat, SPEED_BYTES // 2)
    encoding, decoding = measure(tiled, codebook, threads=threads, rounds=rounds)
    ratio = ratios(flat, codebook)
    console.print(f"The cache tiled to {tiled.nbytes >> 20} MiB, {threads} thread(s), {rounds} rounds in turn.")
    console.print(summary_table(encoding, decoding, ratio))
    present = {candidate.name for candidate in candidates(codebook, 1)}
    if len(present) < 7:
        console.print(
            "More peers: pip install 'sprigs-splitzip[peers]'; pip install --no-deps zipnn; pip install safetensors"
        )

    console.rule("Does it pay on my link?")
    encode_rate, decode_rate = encoding.rates["splitzip"], decoding.rates["splitzip"]
    console.print(
        f"With the {ratio['splitzip']:.3f} and the GB/s of splitzip above, on this CPU with {threads} thread(s); "
        f"one after another it pays below {breakeven_bandwidth(ratio['splitzip'], encode_rate, decode_rate) / 1e9:.2f} "
        "GB/s (break-even), overlapped in frames up to the slower of encoder and decoder."
    )
    console.print(_link_table(ratio["splitzip"], encode_rate, decode_rate))

    try:
        _plot(output, cache, table, encoding, decoding, ratio)
        console.print(f"Picture: {output}")
    except ModuleNotFoundError:
        console.print("For the picture: pip install 'sprigs-splitzip[plot]'")
    console.print(f"{time.perf_counter() - began:.1f} s")


def layer_ratios(cache: Bits, banks: dict[int, CodebookBank]) -> dict[str, npt.NDArray[np.float64]]:
    """Ratio of each layer's K and V with each bank, and the exponents' entropy bound; arrays of shape (layers, 2)."""
    codecs = {f"{bits}-bit": Codec(bank) for bits, bank in banks.items()}
    result = {name: np.empty(cache.shape[:2]) for name in (*codecs, "bound")}
    for layer, part in np.ndindex(*cache.shape[:2]):
        x = cache[layer, part]
        for name, codec in codecs.items():
            result[name][layer, part] = codec.encode(x, (layer, "kv"[part]), dtype="bf16").ratio
        result["bound"][layer, part] = best_ratio(exponent_histogram(x, "bf16"))
    return result


def _exactness(cache: Bits, banks: dict[int, CodebookBank]) -> Any:
    from rich.table import Table

    table = Table()
    for column in ("", "bytes", "ratio", "escapes", "SHA-256 of the decoded bits"):
        table.add_column(
            column, justify="right" if column in ("bytes", "ratio", "escapes") else "left", overflow="fold"
        )
    table.add_row("original", str(cache.nbytes), "1.000", "", hashlib.sha256(cache.data).hexdigest()[:16])
    for bits, bank in banks.items():
        for name, codebook in (("one codebook", bank["default"]), ("a codebook a layer and part", bank)):
            codec = Codec(codebook)
            if isinstance(codebook, CodebookBank):
                frames = [
                    codec.encode(cache[i], (i[0], "kv"[i[1]]), dtype="bf16") for i in np.ndindex(*cache.shape[:2])
                ]
            else:
                frames = [codec.encode(cache, dtype="bf16")]
            decoded = np.concatenate([decompress(f).view(np.uint16).reshape(-1) for f in frames])
            if not np.array_equal(decoded, cache.reshape(-1)):
                raise SplitZipError("the decoded cache differs from the original: please report this")
            size = sum(f.nbytes for f in frames)
            table.add_row(
                f"{bits}-bit, {name}",
                str(size),
                f"{cache.nbytes / size:.3f}",
                str(sum(f.n_escapes for f in frames)),
                hashlib.sha256(decoded.data).hexdigest()[:16],
            )
    return table


def _layer_table(ratio: dict[str, npt.NDArray[np.float64]]) -> Any:
    from rich.table import Table

    table = Table(caption="bound: an ideal coder of the exponents alone")
    table.add_column("layer", justify="right")
    for part in "KV":
        for name in ratio:
            table.add_column(f"{part} {name}", justify="right")
    for layer in range(len(ratio["bound"])):
        table.add_row(str(layer), *(f"{values[layer, part]:.3f}" for part in (0, 1) for values in ratio.values()))
    table.add_section()
    table.add_row("mean", *(f"{values[:, part].mean():.3f}" for part in (0, 1) for values in ratio.values()))
    return table


def _link_table(ratio: float, encode_rate: float, decode_rate: float) -> Any:
    from rich.table import Table

    table = Table()
    for column in ("link", "GB/s", "one after another", "overlapped", "answer"):
        table.add_column(column, justify="left" if column in ("link", "answer") else "right")
    for link, bandwidth in LINKS.items():
        serial = serial_speedup(bandwidth, ratio, encode_rate, decode_rate)
        overlapped = pipelined_speedup(bandwidth, ratio, encode_rate, decode_rate)
        answer = "compress" if serial > 1 else "compress, overlapped" if overlapped > 1 else "send raw"
        table.add_row(link, f"{bandwidth / 1e9:g}", f"{serial:.3f}x", f"{overlapped:.3f}x", answer)
    return table


def _plot(
    path: Path,
    cache: Bits,
    ratio: dict[str, npt.NDArray[np.float64]],
    encoding: Any,
    decoding: Any,
    ratios_of: dict[str, float],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8.5), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)

    for part, name in enumerate("KV"):
        histogram = exponent_histogram(cache[:, part], "bf16")
        shares = 100 * histogram / histogram.sum()
        a.step(np.arange(256), shares, where="mid", label=name)
    a.axvspan(114.5, 130.5, color="0.9", label="a window of 16", zorder=0)
    a.set(xlim=(100, 140), xlabel="biased exponent", ylabel="% of elements", title="Few exponents occur")
    a.legend()

    values = np.stack([ratio["3-bit"][:, 0], ratio["3-bit"][:, 1]])
    image = b.imshow(values, aspect="auto", cmap="viridis")
    b.set(
        yticks=[0, 1], yticklabels=["K", "V"], xlabel="layer", title="Ratio, 3-bit codes, a codebook a layer and part"
    )
    figure.colorbar(image, ax=b)

    names = [name for name in encoding.rates if name in ratios_of]
    y = np.arange(len(names))
    c.barh(y - 0.2, [encoding.rates[n] / 1e9 for n in names], 0.4, label="encode")
    c.barh(y + 0.2, [decoding.rates[n] / 1e9 for n in names], 0.4, label="decode")
    c.set(yticks=y, yticklabels=[f"{n} ({ratios_of[n]:.3f})" for n in names], xlabel="GB/s of raw data (log)")
    c.set(title="Speed beside peers (ratio)", xscale="log")
    c.invert_yaxis()
    c.legend()

    bandwidth = np.geomspace(0.1e9, 500e9, 200)
    rates = encoding.rates["splitzip"], decoding.rates["splitzip"]
    r = ratios_of["splitzip"]
    d.semilogx(bandwidth / 1e9, [serial_speedup(x, r, *rates) for x in bandwidth], label="one after another")
    d.semilogx(bandwidth / 1e9, [pipelined_speedup(x, r, *rates) for x in bandwidth], label="overlapped")
    d.axhline(1, color="0.4", linewidth=1)
    breakeven = breakeven_bandwidth(r, *rates) / 1e9
    d.axvline(breakeven, color="0.4", linestyle=":", label=f"break-even, {breakeven:.2f} GB/s")
    d.set(xlabel="link, GB/s", ylabel="speed-up of the transfer", title="Where it pays, on this CPU", ylim=(0, None))
    d.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
