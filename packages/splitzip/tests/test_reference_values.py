"""Published and measured values on the four real caches (the format's specification)."""

import ml_dtypes
import numpy as np
import pytest
import xxhash

from sprigs_splitzip import Codebook, CodebookBank, Codec, compress, exponent_entropy, exponent_histogram, inspect


@pytest.mark.parametrize(
    ("name", "first", "escapes", "nbytes", "ratio", "entropy"),
    [
        ("alice256", 115, 1710, 4_430_464, 1.33129, 2.9367),
        ("constitution96", 115, 572, 1_661_344, 1.33136, 2.9627),
        ("minilm", 114, 99, 885_552, 1.33210, 2.7709),
        ("stories", 116, 58, 123_312, 1.32866, 3.2312),
    ],
)
def test_self_calibrated_four_bits(dump, name, first, escapes, nbytes, ratio, entropy):
    cache = dump(name)
    histogram = exponent_histogram(cache, "bf16")
    codebook = Codebook.from_histogram(histogram, kind="top")
    assert codebook.values == tuple(range(first, first + 16))
    frame = Codec(codebook).encode(cache, dtype="bf16")
    assert (frame.n_escapes, frame.nbytes) == (escapes, nbytes)
    assert frame.ratio == pytest.approx(ratio, abs=5e-6)
    assert exponent_entropy(histogram) == pytest.approx(entropy, abs=5e-5)


def test_alice_frame_hashes(dump):
    frame = Codec(Codebook("bf16", range(115, 131))).encode(dump("alice256"), dtype="bf16")
    assert xxhash.xxh3_64_intdigest(frame.buffer) == 0xD0325C056AD6EE8B
    assert frame.info.checksum == 0x74391020D276DA80


@pytest.mark.parametrize(
    ("name", "first", "escapes"),
    [("alice256", 122, 141_899), ("constitution96", None, 55_567), ("minilm", 121, 13_461), ("stories", None, 6_827)],
)
def test_top_eight(dump, name, first, escapes):
    histogram = exponent_histogram(dump(name), "bf16")
    codebook = Codebook.from_histogram(histogram, code_bits=3, kind="top")
    assert round((1 - codebook.coverage(histogram)) * histogram.sum()) == escapes
    if first is not None:
        assert codebook.values == tuple(range(first, first + 8))


def test_keys_and_values_of_alice(dump):
    cache = dump("alice256")
    keys, values = (exponent_histogram(cache[:, part], "bf16") for part in (0, 1))
    top = Codebook.from_histogram(keys, kind="top")
    assert top.values == (0, *range(117, 132))
    assert round((1 - top.coverage(keys)) * keys.sum()) == 459
    assert Codebook.from_histogram(keys).is_window, "auto prefers the window: it costs 4.8e-4 against 3.1e-4"
    top = Codebook.from_histogram(values, kind="top")
    assert top.values == tuple(range(114, 130))
    assert round((1 - top.coverage(values)) * values.sum()) == 585


def test_escapes_of_alice_by_chunk(dump):
    frame = Codec(Codebook("bf16", range(115, 131))).encode(dump("alice256"), dtype="bf16")
    layout = frame.info.sections
    at = frame.info.header_size + layout.starts
    counts = np.diff(frame.buffer[at : at + 4 * (layout.n_chunks + 1)].view(np.uint32).astype(int))
    assert (len(counts), counts.max()) == (360, 66)
    assert counts.mean() == pytest.approx(4.75)
    assert (counts == 0).mean() == pytest.approx(0.072, abs=5e-4)


def test_fp8(dump):
    values = dump("alice256").view(ml_dtypes.bfloat16)
    e5m2 = values.astype(ml_dtypes.float8_e5m2)
    for code_bits, window, escapes, ratio in ((4, (3, 18), 2148, 1.13930), (3, (10, 17), 137_169, 1.12349)):
        codebook = Codebook.from_samples([e5m2], code_bits=code_bits)
        assert (codebook.values[0], codebook.values[-1]) == window
        frame = Codec(codebook).encode(e5m2.reshape(-1))
        assert frame.n_escapes == escapes
        assert frame.ratio == pytest.approx(ratio, abs=5e-6)
    e4m3 = values.astype(ml_dtypes.float8_e4m3fn)
    assert {f.mode_name for b in (3, 4) for f in inspect(compress(e4m3, code_bits=b)).frames} == {"raw"}


@pytest.mark.parametrize(
    ("dtype", "code_bits", "rate", "ratio"),
    [
        ("bf16", 4, 2.475e-4, 1.3295),
        ("bf16", 3, 2.546e-2, 1.3746),
        ("e5m2", 4, None, 1.1372),
        ("e5m2", 3, None, 1.2052),
    ],
)
def test_a_bank_calibrated_on_another_text(dump, dtype, code_bits, rate, ratio):
    calibration, cache = dump("constitution96"), dump("alice256")
    if dtype == "e5m2":
        calibration, cache = (
            x.view(ml_dtypes.bfloat16).astype(ml_dtypes.float8_e5m2).view(np.uint8) for x in (calibration, cache)
        )
    parts = list(np.ndindex(30, 2))
    bank = CodebookBank.calibrate(
        (((layer, "kv"[part]), calibration[layer, part]) for layer, part in parts),
        dtype,
        code_bits=code_bits,
        kind="top",
    )
    codec = Codec(bank)
    frames = [codec.encode(cache[layer, part], (layer, "kv"[part]), dtype=dtype) for layer, part in parts]
    assert cache.nbytes / sum(frame.nbytes for frame in frames) == pytest.approx(ratio, abs=2e-4)
    if rate is not None:
        assert np.mean([frame.escape_rate for frame in frames]) == pytest.approx(rate, rel=5e-3)
