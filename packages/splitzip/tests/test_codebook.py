"""Codebooks, banks and the drift monitor."""

import json
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprigs_splitzip import Codebook, CodebookBank, Codec, EscapeMonitor, FormatError, SplitZipError, UnsupportedDtype
from sprigs_splitzip.bank import DEFAULT

histograms = st.lists(st.integers(0, 50), min_size=32, max_size=32).map(np.array)


def test_values_are_canonical():
    assert Codebook("bf16", [*range(130, 114, -1)]) == Codebook("bf16", range(115, 131))
    assert Codebook("bf16", range(115, 131)).values == tuple(range(115, 131))


@given(histogram=histograms, code_bits=st.sampled_from([3, 4]))
def test_top_covers_most_and_breaks_ties_downward(histogram, code_bits):
    size = 2**code_bits
    codebook = Codebook.from_histogram(histogram, "e5m2", code_bits=code_bits, kind="top")
    assert histogram[list(codebook.values)].sum() == np.sort(histogram)[-size:].sum()
    chosen = [v for v in codebook.values if histogram[v]]
    for left_out in set(range(32)) - set(codebook.values):
        equals = [v for v in chosen if histogram[v] == histogram[left_out]]
        assert all(v < left_out for v in equals) or not histogram[left_out]


@given(histogram=histograms, code_bits=st.sampled_from([3, 4]))
def test_window_is_the_best_window(histogram, code_bits):
    size = 2**code_bits
    codebook = Codebook.from_histogram(histogram, "e5m2", code_bits=code_bits, kind="window")
    sums = [histogram[i : i + size].sum() for i in range(32 - size + 1)]
    assert codebook.is_window
    assert codebook.values[0] == sums.index(max(sums))


@given(histogram=histograms)
def test_auto_takes_the_window_unless_it_costs(histogram):
    auto, top, window = (Codebook.from_histogram(histogram, "e5m2", kind=k) for k in ("auto", "top", "window"))
    assert auto == (window if top.coverage(histogram) - window.coverage(histogram) < 5e-4 else top)


@given(histogram=histograms)
def test_auto_bits_follow_the_break_even_of_one_in_24(histogram):
    three, four = (Codebook.from_histogram(histogram, "e5m2", code_bits=b) for b in (3, 4))
    saved = (1 - three.coverage(histogram)) - (1 - four.coverage(histogram))
    auto = Codebook.from_histogram(histogram, "e5m2", code_bits="auto")
    if abs(saved - 1 / 24) > 1e-9:
        assert auto.code_bits == (3 if saved < 1 / 24 else 4)


def test_filled_with_the_nearest_when_few_exponents_occur():
    histogram = np.zeros(256, int)
    histogram[[100, 200]] = 5
    codebook = Codebook.from_histogram(histogram, code_bits=3, kind="top")
    # The four at distance 1, then the two smallest of the four at distance 2.
    assert codebook.values == (98, 99, 100, 101, 102, 199, 200, 201)


def test_nothing_seen_still_gives_a_valid_codebook():
    for kind in ("top", "window", "auto"):
        assert len(set(Codebook.from_histogram(np.zeros(256, int), kind=kind).values)) == 16


def test_runs():
    codebook = Codebook("bf16", [0, *range(117, 132)])
    assert [(r.first, r.length, r.code) for r in codebook.runs] == [(0, 1, 0), (117, 15, 1)]
    assert not codebook.is_window
    assert len(Codebook("bf16", range(0, 32, 2)).runs) == 16


def test_expected_bits_is_what_encoding_takes():
    x = (np.random.default_rng(0).normal(size=1 << 20).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    histogram = np.bincount((x >> 7) & 255, minlength=256)
    codebook = Codebook.from_histogram(histogram, code_bits=3)
    frame = Codec(codebook).encode(x, dtype="bf16")
    starts = 4 * (frame.info.sections.n_chunks + 1)
    assert frame.info.payload_size - starts == pytest.approx(codebook.expected_bits(histogram) * x.size / 8, abs=64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Codebook("bf16", range(15)),
        lambda: Codebook("bf16", [1] * 16),
        lambda: Codebook("bf16", range(250, 266)),
        lambda: Codebook("e5m2", range(20, 36)),
        lambda: Codebook("bf16", range(-1, 15)),
        lambda: Codebook("bf16", range(32), 5),
        lambda: Codebook("opaque", range(16)),
        lambda: Codebook.from_histogram(np.zeros(255, int)),
        lambda: Codebook.from_histogram(-np.ones(256, int)),
        lambda: Codebook.from_histogram(np.ones(256)),
        lambda: Codebook.from_histogram(np.ones(256, int), code_bits=5),
        lambda: Codebook.from_histogram(np.ones(256, int), kind="best"),
        lambda: Codebook.from_samples([]),
        lambda: Codebook.from_samples([np.zeros(3, np.float32), np.zeros(3, np.float16)]),
        lambda: CodebookBank({}),
        lambda: CodebookBank({"a": Codebook("bf16", range(16)), "b": Codebook("fp16", range(16))}),
        lambda: CodebookBank.calibrate([]),
        lambda: CodebookBank({3: Codebook("bf16", range(16))}),
        lambda: CodebookBank({"a": Codebook("bf16", range(16))}).find("b"),
        lambda: EscapeMonitor(recalibrate_at=0),
        lambda: EscapeMonitor(decay=1),
    ],
)
def test_refused(make):
    with pytest.raises(SplitZipError):
        make()


def test_dict_round_trip():
    codebook = Codebook("e4m3fn", range(2, 10), 3)
    assert Codebook.from_dict(json.loads(json.dumps(codebook.to_dict()))) == codebook
    with pytest.raises(FormatError):
        Codebook.from_dict({"dtype": "bf16"})
    with pytest.raises(UnsupportedDtype):
        Codebook.from_dict({"dtype": "int7", "code_bits": 4, "values": list(range(16))})


def test_bank_saves_and_loads(tmp_path):
    samples = [((layer, part), np.full(10, 2.0**layer, np.float16)) for layer in range(3) for part in "kv"]
    bank = CodebookBank.calibrate(samples, code_bits=3)
    path = tmp_path / "bank.json"
    path.write_text("an older file")
    bank.save(path)
    loaded = CodebookBank.load(path)
    assert dict(loaded) == dict(bank)
    assert len(loaded) == 7
    assert (2, "v") in loaded
    assert (7, "v") not in loaded
    assert loaded.find((7, "v")) == loaded[DEFAULT]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    assert [p.name for p in tmp_path.iterdir()] == ["bank.json"], "no temporary file may be left"


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "bank.json"
    path.write_text("precious")
    monkeypatch.setattr("json.dump", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        CodebookBank({"a": Codebook("bf16", range(16))}).save(path)
    assert path.read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1


def test_monitor_is_an_exponential_moving_average():
    monitor = EscapeMonitor(recalibrate_at=0.3, decay=0.75)
    assert monitor.rate() is None
    monitor.update(0.0)
    for expected in (0.25, 0.4375, 0.578125):
        monitor.update(1.0)
        assert monitor.rate() == expected
    assert monitor.due() == [DEFAULT]
