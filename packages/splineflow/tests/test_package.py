"""The package as a user meets it: contract, commands, files, demo, pictures, claims."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs.testing import checks
from sprigs_splineflow import BSplinePath, SplineFlow, SplineFlowError, plot
from sprigs_splineflow.cli import fit, predict
from sprigs_splineflow.demo import demo
from sprigs_splineflow.files import read_observations, write_paths


@pytest.mark.parametrize(("title", "check"), checks("splineflow"))
def test_contract(title, check):
    check()


def run(command, *arguments, code=0):
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def long_table(folder):
    """Two decays, one entry missing, times of their own."""
    lines = ["id,time,a,b"]
    for who, shift in (("one", 0.0), ("two", 0.05)):
        for t in np.arange(0, 3, 0.25) + shift:
            a = "" if (who, t) == ("one", 1.0) else f"{np.exp(-t):.6f}"
            lines.append(f"{who},{t},{a},{2 * np.exp(-t):.6f}")
    file = folder / "long.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_trajectories_from_csv_through_the_commands(tmp_path):
    """fit, then predict: the decay goes on as it should."""
    file, model, out = long_table(tmp_path), tmp_path / "m.safetensors", tmp_path / "p.csv"
    seen = read_observations(file)
    assert seen.values.shape == (2, 12, 2)
    assert seen.names == ("a", "b")
    assert not seen.mask[0, 4, 0]
    assert seen.mask.sum() == 47
    printed = run(fit, file, "-o", model, "--steps", 800, "--hidden", "32,32", "--autonomous", "--json")
    facts = json.loads(printed)
    assert (facts["path"], facts["degree"], facts["dimensions"]) == ("bspline", 3, 2)
    starts = tmp_path / "x0.csv"
    starts.write_text("a,b\n1.0,2.0\n0.5,1.0\n")
    run(predict, model, starts, "--times", "0:1:5", "-o", out)
    back = read_observations(out)
    np.testing.assert_allclose(back.times, np.linspace(0, 1, 5))
    np.testing.assert_allclose(back.values[0, -1], [np.exp(-1), 2 * np.exp(-1)], atol=0.05)


def test_snapshots_and_samples_through_the_commands(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(60, 2)) * 0.2 + k for k in range(3)])
    np.savez(tmp_path / "s.npz", x=x, time=np.repeat([0.0, 1.0, 2.0], 60))
    printed = run(
        fit, tmp_path / "s.npz", "-o", tmp_path / "m.st", "--steps", 60, "--hidden", "16", "--coupling", "sinkhorn"
    )
    assert "3 snapshots of 180 members" in printed
    np.savez(tmp_path / "x0.npz", x0=x[:4])
    run(predict, tmp_path / "m.st", tmp_path / "x0.npz", "-t", "0,1,2", "-o", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as content:
        assert content["values"].shape == (4, 3, 2)
        np.testing.assert_array_equal(content["values"][:, 0], x[:4].astype(np.float32))
    t = np.arange(0, 3, 0.1)
    np.savez(tmp_path / "n.npz", times=t, values=rng.normal(size=(20, 30, 1)).cumsum(axis=1) * 0.1)
    printed = run(fit, tmp_path / "n.npz", "-o", tmp_path / "n.st", "--steps", 40, "--hidden", "16", "--stochastic")
    assert "diffusion" in printed
    np.savez(tmp_path / "x1.npz", x0=np.zeros((2, 1)))
    run(predict, tmp_path / "n.st", tmp_path / "x1.npz", "-t", "0:2:3", "-n", 5, "-o", tmp_path / "q.npz")
    with np.load(tmp_path / "q.npz") as content:
        assert content["values"].shape == (5, 2, 3, 1)
        assert content["values"][:, :, -1].std() > 0.05


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,t,a\n1,0,1\n", "column time"),
        ("id,time\n1,0\n", "no column besides"),
        ("id,time,a\n1,0\n", "2 fields"),
        ("id,time,a\n1,x,2\n", "no finite number"),
        ("id,time,a\n1,,2\n", "no time"),
        ("id,time,a\n1,0,inf\n", "no finite number"),
        ("id,time,a\n", "no rows"),
        ("", "column time"),
        ("time,a\n0,\n", "finite"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(SplineFlowError, match=message):
        read_observations(tmp_path / "t.csv")
    assert message.split()[-1] in run(fit, tmp_path / "t.csv", code=1)


def test_bad_archives(tmp_path):
    file = tmp_path / "a.npz"
    for content in (
        {"x": np.zeros(3)},
        {"times": np.zeros(3), "values": np.zeros((3, 1))},
        {"x": np.zeros((3, 1)), "time": np.zeros(2)},
        {"x": np.array(["a"]), "time": np.zeros(1)},
    ):
        np.savez(file, **content)
        with pytest.raises(SplineFlowError):
            read_observations(file)
    np.savez(file, times=np.array([object()]), values=np.zeros(1))
    with pytest.raises(SplineFlowError, match="cannot be read"):
        read_observations(file)
    with pytest.raises(SplineFlowError, match=r"\.npz, \.csv or \.h5ad"):
        read_observations(tmp_path / "a.h5")
    with pytest.raises(SplineFlowError, match=r"\.npz or \.csv"):
        write_paths(tmp_path / "a.h5", np.zeros(1), np.zeros((1, 1, 1)), ("a",))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_archives_raise_one_kind_of_error(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    good, bad = folder / "good.npz", folder / "bad.npz"
    if not good.exists():
        np.savez_compressed(good, times=np.arange(4.0), values=np.ones((2, 4, 1)))
    raw = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    bad.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    try:
        found = read_observations(bad)
    except SplineFlowError:
        return
    # What is still read is what was written: archives carry checksums, only names and dates do not.
    np.testing.assert_array_equal(found.values, np.ones((2, 4, 1)))


def test_bad_commands(tmp_path):
    file = long_table(tmp_path)
    assert "--hidden takes widths" in run(fit, file, "--hidden", "wide", code=1)
    assert "degree must be" in run(fit, file, "--degree", "7", code=1)
    (tmp_path / "no.st").write_bytes(b"nothing")
    assert "cannot be read" in run(predict, tmp_path / "no.st", file, "-t", "0,1", code=1)
    run(fit, file, "-o", tmp_path / "m.st", "--steps", 2, "--hidden", "4")
    for times, message in (("0:1", "--times takes"), ("a,b", "--times takes"), ("1,1", "monotone")):
        (tmp_path / "x0.csv").write_text("a,b\n1,2\n")
        assert message in run(predict, tmp_path / "m.st", tmp_path / "x0.csv", "-t", times, code=1)
    (tmp_path / "x1.csv").write_text("a\n1\n")
    assert "2 columns" in run(predict, tmp_path / "m.st", tmp_path / "x1.csv", "-t", "0,1", code=1)


def test_demo_says_which_is_better_and_draws_it(tmp_path):
    printed = run(demo, "damped", "-o", tmp_path / "d.png", "--steps", 300)
    assert "straight lines" in printed
    times = float(printed.split("off by ")[1].split(" times")[0])
    assert times > 1
    assert (tmp_path / "d.png").stat().st_size > 50_000
    assert "between 0 and 1" in run(demo, "damped", "--missing", "1.5", code=2)


def test_pictures_show_what_they_are_given():
    t, x = np.arange(6.0), np.random.default_rng(0).normal(size=(3, 6, 2))
    path = BSplinePath.fit(t, x)
    ax = plot.paths(path, 1)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), x[1, :, 0])
    np.testing.assert_allclose(ax.lines[0].get_ydata()[-1], x[1, -1, 0], atol=1e-5)
    slope = plot.paths(path, 1, velocity=True)
    np.testing.assert_allclose(slope.lines[0].get_ydata()[0], path.evaluate([1], [0.0], 1)[0, 0], atol=1e-5)
    ax = plot.phase_portrait(lambda t, s: np.stack([s[:, 1], -s[:, 0]], axis=1), ((-1, 1), (-2, 2)), trajectories=x)
    np.testing.assert_allclose(ax.lines[2].get_xydata(), x[2])
    assert len(ax.collections) == 1
    ax = plot.marginals(list(np.moveaxis(x, 1, 0)), t, trajectories=x)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.moveaxis(x, 1, 0).reshape(-1, 2))
    with pytest.raises(SplineFlowError, match="snapshots"):
        plot.marginals([x[0]], t)
    with pytest.raises(SplineFlowError, match="limits"):
        plot.phase_portrait(lambda t, s: s, ((1, 1), (0, 1)))


def test_a_model_on_tensors_and_arrays_is_the_same():
    t, x = np.arange(0, 3, 0.2), np.exp(-np.arange(0, 3, 0.2))[None, :, None]
    options = {"hidden": (8,), "max_steps": 5, "random_state": 0, "progress": False}
    one = SplineFlow(**options).fit(t, x)
    two = SplineFlow(**options).fit(torch.tensor(t), torch.tensor(x))
    np.testing.assert_array_equal(one.vector_field(0.5, x), two.vector_field(0.5, x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["limit", "polynomials", "marginals", "noise", "learnt", "raw-time", "unseen"])
def test_fast_claims_hold(name):
    from sprigs_splineflow.claims import CLAIMS

    outcome = next(c for c in CLAIMS if c.id == name).run(True)
    assert outcome.holds is not False, outcome
