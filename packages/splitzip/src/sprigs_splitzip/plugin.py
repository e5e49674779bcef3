"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sprigs

if TYPE_CHECKING:
    import click

_EXPORTS = {
    "compress": "codec",
    "decompress": "codec",
    "inspect": "codec",
    "Codec": "codec",
    "Encoded": "codec",
    "Codebook": "codebook",
    "CodebookBank": "bank",
    "encode_pages": "paged",
    "decode_pages": "paged",
    "layout_fingerprint": "paged",
    "StreamEncoder": "stream",
    "StreamDecoder": "stream",
    "EscapeMonitor": "bank",
    "report": "statistics",
    "exponent_histogram": "statistics",
    "exponent_entropy": "statistics",
    "max_encoded_size": "format",
    "LinkProfile": "transfer",
    "CodecProfile": "transfer",
    "AdaptivePolicy": "transfer",
    "simulate": "transfer",
    "transfer_time": "transfer",
    "measure_codec": "transfer",
    "breakeven_bandwidth": "transfer",
    "serial_speedup": "transfer",
    "pipelined_speedup": "transfer",
}


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="splitzip",
        title="Lossless KV-cache compression at memory-copy speed",
        paper=sprigs.Paper(
            title="SplitZip (arXiv 2605.01708)",
            url="https://arxiv.org/abs/2605.01708",
            authors="Guo and Joshi",
        ),
        exports={name: f"sprigs_splitzip.{module}:{name}" for name, module in _EXPORTS.items()},
        demo="sprigs_splitzip.demo:demo",
        bench="sprigs_splitzip.bench:bench",
        claims="sprigs_splitzip.claims:CLAIMS",
        extras={
            "fast": ("numba",),
            "plot": ("matplotlib",),
            "safetensors": ("safetensors",),
            "torch": ("torch",),
            "jax": ("jax",),
            "cuda12": ("cupy",),
            "cuda13": ("cupy",),
            "capture": ("transformers", "gguf", "accelerate"),
            "peers": ("zstandard", "lz4", "blosc2"),
        },
        capabilities=("codec.lossless.kv",),
    )


@sprigs.hookimpl
def sprigs_commands() -> list[click.Command]:
    """Return the commands that appear as `sprigs splitzip ...`."""
    from .cli import commands

    return commands
