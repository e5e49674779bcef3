"""The package as a plugin, its demo, its fixture."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import sprigs
from sprigs.testing import checks
from sprigs_emulator.demo import BROKEN, MENDED, demo

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(("name", "check"), checks("emulator"))
def test_contract(name, check):
    check()


def test_demo():
    done = CliRunner().invoke(demo, ["--threads", "25600"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for text in ("RacecheckError: racecheck: thread", "InitcheckError: initcheck: thread",
                 "silent under 50 seeds", 'checks="all"'):  # fmt: skip
        assert text in done.output


def test_demo_without_a_compiler(monkeypatch):
    monkeypatch.setenv("SPRIGS_EMULATOR_CXX", "no-such-compiler")
    done = CliRunner().invoke(demo)
    assert done.exit_code == 1
    assert "no-such-compiler" in done.output


def test_readme_shows_what_the_demo_shows():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for text in (BROKEN, MENDED):
        assert text.strip() in readme
    output = CliRunner().invoke(demo, ["--threads", "25600"], catch_exceptions=False).output
    reports = [block for block in output.split("\n\n") if "Error: " in block]
    assert len(reports) == 2
    for report in reports:
        assert report.strip() in readme


FIXTURE = """
    import numpy as np

    TEXT = '''
    extern "C" __global__ void twice(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2 * x[i];
    }
    '''

    def test_twice(kernel_backend):
        x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
        kernels = kernel_backend.compile(TEXT)
        kernels["twice"](4, 32, (x, y, 100), seed=3, written_fully=["y"])
        np.testing.assert_array_equal(y, 2 * x)
"""


def test_fixture_runs_a_test_emulated(pytester):
    pytester.makepyfile(FIXTURE)
    result = pytester.runpytest_subprocess("-m", "not gpu", "-p", "no:cacheprovider", "--strict-markers", "-W", "error")
    result.assert_outcomes(passed=1, deselected=1)


def test_fixture_skips_with_the_reason(pytester, monkeypatch):
    monkeypatch.setenv("SPRIGS_EMULATOR_CXX", "no-such-compiler")
    monkeypatch.setitem(sys.modules, "cupy", None)
    pytester.makepyfile(FIXTURE)
    pytester.makeconftest("import sys\nsys.modules['cupy'] = None\n")
    result = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines_random(["*no-such-compiler: no such program*", "*CuPy is not installed*"])


def test_pytest_plugin_is_light():
    code = (
        "import sys, sprigs_emulator.pytest_plugin\n"
        "print(sorted({'numpy', 'ctypes', 'sprigs_emulator.emulated'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_card():
    card = sprigs.get("emulator")
    assert card.paper is None
    assert {"compile", "Emulated", "RacecheckError"} <= set(card.exports)
