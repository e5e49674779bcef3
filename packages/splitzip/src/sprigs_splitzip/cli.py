"""The commands `sprigs splitzip ...`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .bank import CodebookBank, Key
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
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what the headers of a compressed stream say."""
    from .codec import inspect as inspect_stream

    with _clean_errors():
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
    else:
        for key, value in summary.items():
            click.echo(f"{key:15} {value}")


class _clean_errors:
    """Turn the package's errors into one line and exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (SplitZipError, OSError)):
            raise click.ClickException(str(error)) from error


commands: list[click.Command] = [calibrate, capture, inspect]


@click.group()
def main() -> None:
    """Lossless KV-cache compression."""


for _command in commands:
    main.add_command(_command)
