"""Benchmarks under a clock of our own, where every answer is known."""

import io
import itertools
import json
import random
import sys

import pytest

from sprigs.bench import BenchMismatch, compare, scaling


class FakeClock:
    """A clock that moves only when a callable spends time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spending(self, seconds, result=1):
        """A callable that takes so long, a number or the next of an iterator."""
        times = itertools.repeat(seconds) if isinstance(seconds, (int, float)) else seconds

        def run():
            self.now += next(times)
            return result

        return run


@pytest.fixture
def clock():
    return FakeClock()


def test_known_ratios(clock):
    functions = {
        "slow": clock.spending(2.0),
        "fast": clock.spending(0.5),
        "same": clock.spending(2.0),
    }
    result = compare(functions, clock=clock, nbytes=8)
    assert result.baseline == "slow"
    assert result.medians == {"slow": 2.0, "fast": 0.5, "same": 2.0}
    assert result.ratios["fast"] == (0.25, 0.25, 0.25)
    assert result.ratios["same"] == (1.0, 1.0, 1.0)
    assert result.spread == {"slow": 0.0, "fast": 0.0, "same": 0.0}
    assert result.rates == {"slow": 4.0, "fast": 16.0, "same": 4.0}
    again = compare(functions, clock=clock, baseline="fast")
    assert again.ratios["slow"].ratio == 4.0


def test_spread_is_the_interquartile_range_over_the_median(clock):
    # After one call for the check: 1, 2, 3, 4, 5, whose quartiles are 2 and 4 and median 3.
    times = iter([9, 1, 2, 3, 4, 5])
    result = compare({"a": clock.spending(times)}, clock=clock, rounds=5, warmup=0)
    assert result.seconds["a"] == (1, 2, 3, 4, 5)
    assert result.spread["a"] == pytest.approx(2 / 3)


def test_rounds_are_interleaved_and_rotate(clock):
    calls = []

    def named(name):
        def run():
            calls.append(name)
            clock.now += 1
            return 0

        return run

    compare({name: named(name) for name in "abc"}, clock=clock, rounds=4, warmup=1)
    # Once for the check, once to warm up, then the rounds.
    assert "".join(calls) == "abc" + "abc" + "abc" + "bca" + "cab" + "abc"


def test_drift_cancels_in_the_paired_ratio(clock):
    """The machine gets three times slower on the way; the ratio of 2 stays what it is."""
    drift = [1 + 2 * i / 30 for i in range(200)]
    generator = random.Random(1)

    def times(scale):
        return (scale * d * generator.uniform(0.99, 1.01) for d in drift)

    result = compare(
        {"a": clock.spending(times(1.0)), "b": clock.spending(times(2.0))},
        clock=clock,
        rounds=31,
    )
    ratio, low, high = result.ratios["b"]
    assert low <= ratio <= high
    assert low > 1.97
    assert high < 2.03
    assert high - low < 0.02
    # The medians alone spread far wider than that.
    assert result.spread["b"] > 0.3


def test_interval_covers_the_truth_about_as_often_as_it_says(clock):
    """Two callables of the same distribution: 1 lies in about 95 % of the intervals."""
    generator = random.Random(7)
    hits = 0
    trials = 100
    for seed in range(trials):
        times = [(generator.lognormvariate(0, 0.2) for _ in itertools.count()) for _ in "ab"]
        result = compare(
            {"a": clock.spending(times[0]), "b": clock.spending(times[1])},
            clock=clock,
            rounds=21,
            warmup=0,
            seed=seed,
        )
        hits += result.ratios["b"].low <= 1 <= result.ratios["b"].high
    # Binomial(100, 0.95) is below 86 once in ten thousand; percentile intervals run a bit narrow.
    assert hits >= 86


def test_same_seed_same_interval(clock):
    def noisy():
        generator = random.Random(3)
        return {name: clock.spending(iter([generator.uniform(1, 2) for _ in range(99)])) for name in "ab"}

    first, second = (compare(noisy(), clock=clock, seed=5) for _ in range(2))
    assert first.ratios["b"] == pytest.approx(second.ratios["b"], rel=1e-12)


def test_min_time_repeats_the_call(clock):
    calls = itertools.count()

    def run():
        next(calls)
        clock.now += 0.25
        return 1

    result = compare({"a": run}, clock=clock, rounds=3, warmup=0, min_time=1.0)
    assert result.medians["a"] == 0.25
    # 1 for the check, 1 + 2 + 4 to find the count, 3 rounds of 4.
    assert next(calls) == 1 + 7 + 12


def test_real_clock():
    import time

    def sleeping(seconds):
        def run():
            time.sleep(seconds)
            return "slept"

        return run

    result = compare({"short": sleeping(0.004), "long": sleeping(0.02)}, rounds=5, warmup=0)
    # A sleep never ends early, and on a busy machine it may end late: only the order is sure.
    assert result.medians["long"] >= 0.02
    assert result.ratios["long"].ratio > 1.5


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (b"abc", b"abd"),
        ([1, 2], [1, 3]),
        ({"a": b"x"}, {"a": b"y"}),
        ((1, 2), (1, 2, 3)),
        (1.0, float("nan")),
    ],
)
def test_disagreement_is_found_before_anything_is_timed(clock, left, right):
    functions = {"ours": clock.spending(1, left), "peer": clock.spending(1, right)}
    with pytest.raises(BenchMismatch, match="'peer' and 'ours' give different results"):
        compare(functions, clock=clock)
    assert clock.now == 2  # one call each


def test_arrays_agree_bit_by_bit(clock):
    np = pytest.importorskip("numpy")
    array = np.array([1.0, np.nan, 3.0])

    def pair(other):
        return {"a": clock.spending(1, array), "b": clock.spending(1, other)}

    compare(pair(array.copy()), clock=clock)
    compare(
        {"a": clock.spending(1, {"x": [array]}), "b": clock.spending(1, {"x": [array.copy()]})},
        clock=clock,
    )
    for other in (array[:2], np.array([1.0, np.nan, np.nextafter(3.0, 4.0)]), "text"):
        with pytest.raises(BenchMismatch):
            compare(pair(other), clock=clock)
    compare(
        pair(array + 1e-9),
        clock=clock,
        check=lambda r: np.allclose(r["a"], r["b"], equal_nan=True),
    )


def test_checks_of_the_callers_own(clock):
    functions = {"a": clock.spending(1, 1), "b": clock.spending(1, 2)}
    compare(functions, check=lambda results: None, clock=clock)

    def refuse(results):
        raise AssertionError(f"saw {sorted(results.items())}")

    with pytest.raises(BenchMismatch, match=r"saw \[\('a', 1\), \('b', 2\)\]"):
        compare(functions, check=refuse, clock=clock)
    with pytest.raises(BenchMismatch, match="returned False"):
        compare(functions, check=lambda results: False, clock=clock)
    with pytest.raises(TypeError, match="what is not checked"):
        compare(functions, check=False, clock=clock)


def test_nothing_to_compare_is_no_agreement(clock):
    functions = {"a": clock.spending(1, None), "b": clock.spending(1, None)}
    with pytest.raises(ValueError, match="every callable returns None"):
        compare(functions, clock=clock)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 2}, "rounds must be at least 3"),
        ({"warmup": -1}, "must not be negative"),
        ({"min_time": -1.0}, "must not be negative"),
        ({"baseline": "c"}, "baseline 'c' is none of 'a'"),
        ({"nbytes": 0}, "nbytes must be positive"),
    ],
)
def test_compare_refuses(clock, arguments, message):
    with pytest.raises(ValueError, match=message):
        compare({"a": clock.spending(1)}, clock=clock, **arguments)
    with pytest.raises(ValueError, match="functions is empty"):
        compare({})


def test_a_clock_too_coarse_is_an_error(clock):
    with pytest.raises(ValueError, match=r"pass min_time=0\.01"):
        compare({"a": clock.spending(0)}, clock=clock)


def test_json_tells_of_the_machine_and_of_nobody(clock, tmp_path, monkeypatch):
    import getpass
    import platform

    monkeypatch.setattr(
        sys,
        "argv",
        [f"{tmp_path}/bench_x.py", "-o", f"{tmp_path}/out/x.json", f"--in={tmp_path}/y", "--n=3"],
    )
    result = compare(
        {"a": clock.spending(1), "b": clock.spending(2)},
        clock=clock,
        threads=2,
        packages=["pluggy", "not-installed-at-all"],
    )
    path = tmp_path / "new" / "x.json"
    result.save(path)
    text = path.read_text()
    for private in (str(tmp_path), platform.node(), getpass.getuser() + "/", "/home", "/tmp"):
        assert private not in text
    saved = json.loads(text)
    assert saved["command"] == "bench_x.py -o x.json --in=y --n=3"
    assert saved["machine"]["packages"]["pluggy"]
    assert saved["machine"]["packages"]["not-installed-at-all"] is None
    assert saved["machine"]["cores"] >= 1
    assert saved["threads"] == 2
    assert saved["results"]["b"]["ratio"] == 2.0
    assert saved["results"]["b"]["ratio_interval_95"] == [2.0, 2.0]
    assert saved["results"]["b"]["seconds"] == [2.0] * 15


def test_table_says_what_was_measured(clock):
    from rich.console import Console

    functions = {"zlib[9]": clock.spending(0.002), "peer": clock.spending(0.004)}
    result = compare(functions, clock=clock, nbytes=2_000_000)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(result.table())
    text = console.export_text()
    for expected in ("zlib[9]", "time / zlib[9]", "2 ms", "4 ms", "2 .. 2", "1 GB/s", "500 MB/s"):
        assert expected in text


@pytest.mark.parametrize("power", [1, 2])
def test_exponent_of_a_power_law(clock, power):
    def make(size):
        return clock.spending(1e-6 * size**power)

    result = scaling(make, [10, 100, 1000, 5000], clock=clock)
    assert result.exponent == pytest.approx(power, abs=1e-9)
    assert result.interval == pytest.approx((power, power), abs=1e-9)
    assert result.to_dict()["results"][1]["median_seconds"] == pytest.approx(1e-6 * 100**power)


def test_exponent_under_noise(clock):
    generator = random.Random(11)

    def make(size):
        return clock.spending(1e-6 * size**1.5 * generator.lognormvariate(0, 0.05) for _ in itertools.count())

    result = scaling(make, [16, 64, 256, 1024], rounds=21, clock=clock)
    low, high = result.interval
    assert low < result.exponent < high
    assert low < 1.5 < high
    assert high - low < 0.05


@pytest.mark.parametrize("sizes", [[], [1, 2], [1, 2, 2], [0, 1, 2]])
def test_scaling_wants_three_sizes(sizes):
    with pytest.raises(ValueError, match="at least 3 different positive"):
        scaling(lambda size: lambda: None, sizes)


def test_plots_are_drawn_without_pyplot(clock, tmp_path):
    pytest.importorskip("matplotlib")
    compare({"a": clock.spending(1), "b": clock.spending(2)}, clock=clock).plot(tmp_path / "a.png")
    result = scaling(clock.spending, [1, 2, 4], clock=clock)
    result.plot(tmp_path / "folder" / "b.png")
    result.save(tmp_path / "b.json")
    for picture in (tmp_path / "a.png", tmp_path / "folder" / "b.png"):
        assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert json.loads((tmp_path / "b.json").read_text())["exponent"] == pytest.approx(1.0)
    assert "matplotlib.pyplot" not in sys.modules


def test_plot_says_what_to_install(clock, tmp_path, monkeypatch):
    result = compare({"a": clock.spending(1)}, clock=clock)
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sprigs\[bench\]'"):
        result.plot(tmp_path / "a.png")
