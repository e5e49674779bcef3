"""Commands, pictures, the demo, the claims, and the package as a plugin."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sprigs.testing import checks
from sprigs_spingtp import BackendUnavailable, SpinTPError, costs, experiments, plots
from sprigs_spingtp import claims as claims_module
from sprigs_spingtp.cli import commands
from sprigs_spingtp.demo import demo

RUN = {command.name: command for command in commands}
CLAIMS = {claim.id: claim for claim in claims_module.CLAIMS}


@pytest.mark.parametrize(("name", "check"), checks("spingtp"))
def test_contract(name, check):
    check()


def run(name, *arguments):
    result = CliRunner().invoke(RUN[name], list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def test_paths_command(tmp_path):
    assert "34 paths, 11 of them antisymmetric" in run("paths", "--lmax", 3, "--plot", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
    rows = json.loads(run("paths", "--lmax", 2, "--json"))
    assert len(rows) == 15
    assert all((row["gaunt"] == 0) == (row["kind"] == "odd") for row in rows)
    assert CliRunner().invoke(RUN["paths"], ["--lmax", "30"]).exit_code == 1


def test_cross_command():
    rows = json.loads(run("cross", "--json"))
    assert [row["product"] for row in rows] == ["complete", "gaunt"] * 2
    assert "mean squared error" in run("cross")


@pytest.mark.slow
def test_learning_commands():
    content = json.loads(run("tetris", "--json"))
    assert content["spin"]["accuracy"] == 1.0
    assert content["gaunt"]["accuracy"] <= 0.875
    assert "right, unseen" in run("chirality", "--molecules", 40, "--epochs", 1)


def test_pictures(tmp_path):
    rng = np.random.default_rng(0)
    drawn = [
        plots.path_strengths(3, "even"),
        plots.path_strengths(3, "odd"),
        plots.scaling({"a": {1: 1.0, 2: 8.0, 4: 64.0}, "b": {2: 1.0}}),
        plots.confusion(np.eye(3) * 4, ["x", "y", "z"], title="shapes"),
        plots.force_parity(rng.normal(size=(9, 3)), rng.normal(size=(9, 3))),
        plots.spin_quiver(2, -1),
    ]
    for k, ax in enumerate(drawn):
        ax.figure.savefig(tmp_path / f"{k}.png")
        assert (tmp_path / f"{k}.png").stat().st_size > 5000
        assert ax.get_title()
    assert "L^3.0" in drawn[2].get_legend().get_texts()[0].get_text()
    for bad in (
        lambda: plots.confusion(np.eye(2), ["x"]),
        lambda: plots.force_parity([1.0], [1.0, 2.0]),
        lambda: plots.spin_quiver(0, 0),
    ):
        with pytest.raises(SpinTPError):
            bad()


def test_pictures_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendUnavailable, match="matplotlib"):
        plots.path_strengths()


def test_the_demo(tmp_path):
    result = CliRunner().invoke(demo, ["-o", str(tmp_path / "d.png")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "d.png").stat().st_size > 50_000
    assert float(re.search(r"([\d.]+) s\s*$", result.output)[1]) < 60
    assert re.search(r"complete\s*│\s*100.0%", result.output)
    assert re.search(r"Gaunt\s*│\s*87.5%", result.output)


def test_costs_are_measured_and_fitted():
    assert costs.slope({2: 8.0, 4: 64.0, 8: 512.0}) == pytest.approx(3)
    found = costs.times("dense", (1, 4), rows=64, repeats=3)
    assert set(found) == {1, 4}
    assert min(found.values()) > 0


@pytest.mark.parametrize("name", ["complete", "equivariant", "basis", "cross-product"])
def test_quick_claims_hold(name):
    outcome = CLAIMS[name].run(True)
    assert outcome.holds, outcome.measured


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tetris", "crystals", "chiral-molecules"])
def test_learnt_claims_hold(name):
    outcome = CLAIMS[name].run(False)
    assert outcome.holds, outcome.measured


def test_what_was_not_run_says_so():
    outcome = CLAIMS["spice-oc20"].run(True)
    assert outcome.holds is None
    assert "read_frames" in outcome.note


@pytest.fixture
def real():
    import sprigs

    try:
        return experiments.three_bpa(5.0), experiments.acetylacetone(5.0)
    except sprigs.DataUnavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_data_are_as_described(real):
    """Sizes and the RMS of the forces; no frame is both learnt from and tested on."""
    bpa, acac = real
    assert [len(part) for part in (bpa.train, bpa.validation, *bpa.tests.values())] == [300, 50, 150, 469]
    assert [len(part) for part in (acac.train, acac.validation, *acac.tests.values())] == [300, 50, 650, 650, 15]
    assert {len(g.numbers) for g in bpa.train} == {27}
    assert {len(g.numbers) for g in acac.train} == {15}

    def rms(graphs):
        return float(np.sqrt(np.mean([float(g.forces.pow(2).mean()) for g in graphs])))

    assert rms([*bpa.train, *bpa.validation, *bpa.tests["300 K"]]) == pytest.approx(0.948, abs=0.002)
    assert rms(bpa.tests["mixed T"]) == pytest.approx(1.42, abs=0.03)  # of all 500 frames; 31 cold ones are left out
    assert rms(acac.train) == pytest.approx(1.05, abs=0.02)
    for data in real:
        seen = {g.positions.numpy().tobytes() for g in (*data.train, *data.validation)}
        for graphs in data.tests.values():
            assert not any(g.positions.numpy().tobytes() in seen for g in graphs)


@pytest.mark.slow
def test_force_fields_learn(real):
    found = experiments.train_force_field("acac", "spin", 0, epochs=2, train=60, test=20)
    assert found["force_mae"]["300 K"] < 0.6
    assert set(found["energy_mae"]) == {"300 K", "600 K", "H transfer"}


def test_readme_examples_print_what_the_readme_shows(tmp_path):
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 3
    for code, output in examples:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == output


def test_lazy_names():
    import sprigs_spingtp

    for name in sprigs_spingtp.__all__:
        assert getattr(sprigs_spingtp, name) is not None
