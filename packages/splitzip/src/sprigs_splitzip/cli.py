"""The commands `sprigs splitzip ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from .bank import CodebookBank, Key
from .bench import bench
from .errors import SplitZipError

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option(
    "--model", default="smollm2", show_default=True, help="smollm2, a Hugging Face name, folder or .gguf file."
)
@click.option("--text", type=_FILE, help="What the model reads [default: the opening of Alice in Wonderland].")
@click.option("--tokens", default=64, show_default=True, help="Length to cut the text to.")
@click.option("--output", "-o", required=True, type=_PATH, help="Where to: .npy (bit patterns) or .safetensors.")
def capture(model: str, text: Path | None, tokens: int, output: Path) -> None:
    """Run a model over a text and keep its KV cache."""
    from . import capture as capturing

    with _clean_errors():
        reading = None if text is None else text.read_text(encoding="utf-8")
        cache = capturing.capture(model, reading, tokens=tokens)
        capturing.save(cache, output)
    click.echo(f"{output}: {len(cache)} layers, {tokens} tokens, BF16")


@click.command()
@click.argument("dumps", nargs=-1, required=True, type=_FILE)
@click.option("--output", "-o", required=True, type=_PATH, help="The bank, a JSON file.")
@click.option("--code-bits", default="4", show_default=True, type=click.Choice(["3", "4", "auto"]))
def calibrate(dumps: tuple[Path, ...], output: Path, code_bits: str) -> None:
    """Choose a codebook for each layer and part of KV caches written by `capture` as .npy."""
    import numpy as np

    with _clean_errors():
        samples: list[tuple[Key, object]] = []
        for dump in dumps:
            cache = np.load(dump, allow_pickle=False)
            if cache.dtype != np.uint16 or cache.ndim < 3 or cache.shape[1] != 2:
                raise SplitZipError(f"{dump} is no cache of uint16 BF16 bits of shape (layers, 2, ...)")
            samples += [((layer, "kv"[part]), cache[layer, part]) for layer, part in np.ndindex(*cache.shape[:2])]
        bank = CodebookBank.calibrate(samples, "bf16", code_bits=code_bits if code_bits == "auto" else int(code_bits))  # type: ignore[arg-type]
        bank.save(output)
    click.echo(f"{output}: {len(bank)} codebooks")


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--output", "-o", type=_PATH, help="For a single file; default: NAME.splz.safetensors beside it.")
@click.option("--code-bits", default="4", show_default=True, type=click.Choice(["3", "4", "auto"]))
@click.option("--bank", type=_FILE, help="Codebooks by tensor name, as `calibrate` writes them.")
@click.option("--threads", type=int, help="Threads a file [default: the CPUs, at most 8].")
@click.option("--jobs", default=1, show_default=True, help="Files at a time.")
def compress(
    files: tuple[Path, ...],
    output: Path | None,
    code_bits: str,
    bank: Path | None,
    threads: int | None,
    jobs: int,
) -> None:
    """Compress safetensors files, bit-exactly; they remain safetensors files."""
    from concurrent.futures import ThreadPoolExecutor

    from . import io

    with _clean_errors():
        if output is not None and len(files) > 1:
            raise SplitZipError("-o names one file; leave it out to compress several")
        targets = [output or path.with_name(f"{path.stem}.splz.safetensors") for path in files]
        bits: Any = code_bits if code_bits == "auto" else int(code_bits)
        codebooks = None if bank is None else CodebookBank.load(bank)
        with _progress(sum(path.stat().st_size for path in files)) as advance, ThreadPoolExecutor(jobs) as executor:
            infos = io.compress_files(
                zip(files, targets, strict=True),
                executor=executor if jobs > 1 else None,
                bank=codebooks,
                code_bits=bits,
                threads=threads,
                progress=advance,
            )
    for target, info in zip(targets, infos, strict=True):
        told = f"{len(info.compressed)} of {len(info.tensors)} tensors compressed, ratio {info.ratio:.3f}, bit-exact"
        click.echo(f"{target}: {told}")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--output", "-o", required=True, type=_PATH, help="The plain safetensors file.")
@click.option("--threads", type=int, help="Threads [default: the CPUs, at most 8].")
def decompress(file: Path, output: Path, threads: int | None) -> None:
    """Restore the safetensors file that was compressed."""
    from . import io

    with _clean_errors(), _progress(io.inspect_file(file).raw_nbytes) as advance:
        io.decompress_file(file, output, threads=threads, progress=advance)
    click.echo(str(output))


@click.command()
@click.argument("file", type=_FILE)
def verify(file: Path) -> None:
    """Decode everything in a compressed file (safetensors or a bare stream) and compare checksums."""
    from . import io
    from .codec import decompress as decode

    with _clean_errors():
        if _is_stream(file):
            decode(file.read_bytes())
            click.echo(f"{file}: verified")
            return
        with _progress(file.stat().st_size) as advance:
            info = io.verify_file(file, progress=advance)
    click.echo(f"{file}: {len(info.compressed)} tensors verified, ratio {info.ratio:.3f}")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what the headers of a compressed file (safetensors or a bare stream) say."""
    from . import io
    from .codec import inspect as inspect_stream

    summary: dict[str, Any]
    with _clean_errors():
        if not _is_stream(file):
            stored = io.inspect_file(file)
            summary = {
                "raw_bytes": stored.raw_nbytes,
                "bytes": stored.nbytes,
                "ratio": round(stored.ratio, 6),
                "compressed": len(stored.compressed),
                "tensors": {
                    name: {"dtype": dtype, "shape": list(shape), "ratio": round(ratio, 6)}
                    for name, (dtype, shape, ratio) in stored.tensors.items()
                },
            }
        else:
            info = inspect_stream(file.read_bytes())
            summary = {
                "dtype": info.format.name,
                "shape": list(info.shape),
                "frames": len(info.frames),
                "modes": sorted({frame.mode_name for frame in info.frames}),
                "raw_bytes": info.raw_nbytes,
                "bytes": info.nbytes,
                "ratio": round(info.ratio, 6),
                "escapes": info.n_escapes,
                "checksums": all(frame.checksum is not None for frame in info.frames),
                "tag": info.tag,
                "trailing_bytes": info.trailing,
            }
    if as_json:
        click.echo(json.dumps(summary))
        return
    for key, value in summary.items():
        if isinstance(value, dict):
            for name, entry in value.items():
                click.echo(f"{name}: {entry['dtype']} {entry['shape']}, ratio {entry['ratio']:.3f}")
        else:
            click.echo(f"{key:15} {value}")


def _is_stream(file: Path) -> bool:
    # What begins neither as one nor as the other is told apart by its name.
    with file.open("rb") as opened:
        start = opened.read(4)
    return start == b"SPLZ" or file.suffix != ".safetensors"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar where somebody looks on."""
    from rich.progress import Progress

    with Progress(transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)
        yield lambda nbytes: bar.advance(task, nbytes)


@click.command()
@click.option(
    "--link", "links", required=True, multiple=True, help="Bandwidth, like 25GB/s or 400Gb/s; may be repeated."
)
@click.option("--bytes", "nbytes", type=float, help="Raw bytes of the transfer; or give the model's numbers:")
@click.option("--layers", default=64, show_default=True, help="Layers; the defaults are those of Qwen3-32B.")
@click.option("--kv-heads", default=8, show_default=True, help="K and V heads a layer.")
@click.option("--head-dim", default=128, show_default=True, help="Width of a head.")
@click.option("--tokens", default=32_768, show_default=True, help="Tokens in the cache.")
@click.option("--ratio", type=float, help="Of the codec; with both rates, instead of measuring on this machine.")
@click.option("--encode", help="Encoder's rate in raw bytes, like 613GB/s.")
@click.option("--decode", help="Decoder's rate in raw bytes, like 2182GB/s.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    links: tuple[str, ...],
    nbytes: float | None,
    layers: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    ratio: float | None,
    encode: str | None,
    decode: str | None,
    as_json: bool,
) -> None:
    """Tell whether compressing a KV transfer pays on a link, one after another and overlapped."""
    from . import transfer

    with _clean_errors():
        size = int(nbytes) if nbytes is not None else layers * 2 * kv_heads * head_dim * 2 * tokens
        given = (ratio, encode, decode)
        if None not in given:
            assert ratio is not None
            assert encode is not None
            assert decode is not None
            rates = [transfer.LinkProfile.parse(text).bandwidth for text in (encode, decode)]
            codecs = {"given": transfer.CodecProfile(ratio, *rates)}
        elif given == (None, None, None):
            codecs = _measured_profiles()
        else:
            raise SplitZipError("give --ratio, --encode and --decode together, or none of them")
        rows = transfer.compare_modes(size, [transfer.LinkProfile.parse(text) for text in links], codecs)
    if as_json:
        click.echo(json.dumps({"bytes": size, "codecs": {k: vars(v) for k, v in codecs.items()}, "rows": rows}))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 110, highlight=False)
    for name, codec in codecs.items():
        told = f"{codec.encode_rate / 1e9:.2f} GB/s in, {codec.decode_rate / 1e9:.2f} GB/s out"
        console.print(f"codec {name}: ratio {codec.ratio:.3f}, {told}")
    table = Table(title=f"{size / 2**30:.3g} GiB of KV cache, frames of 4 MiB")
    for column in ("link", "codec", "raw", "one after another", "overlapped", "answer"):
        table.add_column(column, justify="left" if column in ("codec", "answer") else "right")
    for row in rows:
        raw = row["raw_seconds"]
        cells = [f"{row[key]:.4g} s ({raw / row[key]:.2f}x)" for key in ("serial_seconds", "overlapped_seconds")]
        table.add_row(f"{row['link'] / 1e9:g} GB/s", row["codec"], f"{raw:.4g} s", *cells, row["answer"])
    console.print(table)


def _measured_profiles() -> dict[str, Any]:
    """Measure 4-bit and 3-bit codes on this machine, on the cache in the package, tiled beyond the caches."""
    import numpy as np

    from .codec import Codec
    from .samples import shipped_bank, shipped_cache
    from .transfer import measure_codec

    x = np.resize(shipped_cache().reshape(-1), 1 << 24)
    return {f"{b} bits": measure_codec(x, Codec(shipped_bank(b)["default"]), dtype="bf16") for b in (4, 3)}


class _clean_errors:
    """Turn the package's errors into one line and exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (SplitZipError, OSError)):
            raise click.ClickException(str(error)) from error


# Its name is `bench`, and it is also the card's: `sprigs bench splitzip`.
commands: list[click.Command] = [bench, calibrate, capture, compress, decompress, inspect, plan, verify]


@click.group()
def main() -> None:
    """Lossless KV-cache compression."""


for _command in commands:
    main.add_command(_command)
