"""A scaffolded package passes everything at once."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from new_method import main, new_method  # noqa: E402

CONFIG = str(ROOT / "pyproject.toml")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    shutil.copy(ROOT / "pyproject.toml", root)
    return new_method("thistle", root / "packages", "Counts thistles", "https://example.org/thistle")


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_of_the_template_is_left(package):
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len(files) >= 15
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "sprigling" not in str(path) + text
        assert "DESCRIPTION" not in text
        assert "PAPER" not in text


def test_lint_and_types(package):
    root = package.parents[1]
    run(sys.executable, "-m", "ruff", "check", ".", cwd=root)
    run(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=root)
    run(sys.executable, "-m", "mypy", package / "src", cwd=root)


def test_wheel_in_a_fresh_environment(package, tmp_path, fresh_environment):
    """Built, checked, installed from the wheel, found through the registry; its own tests and demo run there."""
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--outdir", dist, package)
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.glob("*"))
    (wheel,) = dist.glob("*.whl")
    environment = fresh_environment()
    environment.install(ROOT / "shared", f"sprigs-thistle[test] @ {wheel.as_uri()}")
    code = "import sprigs; e = sprigs.methods()['thistle']; print(e.distribution, e.version, e.summary)"
    found = environment.run(["python", "-c", code])
    assert found.stdout.strip() == "sprigs-thistle 0.1.0 Counts thistles"
    code = "from sprigs.testing import check_method; check_method('thistle')"
    environment.run(["python", "-c", code])
    tested = environment.run(["python", "-m", "pytest", "-c", CONFIG, "-q", "--rootdir", package, package / "tests"])
    assert " passed" in tested.stdout
    assert "mean so far" in environment.run(["sprigs", "demo", "thistle"]).stdout
    assert "holds" in environment.run(["sprigs", "claims", "thistle", "--fast"]).stdout


def test_its_readme_shows_what_really_comes_out(package, fresh_environment):
    text = (package / "README.md").read_text(encoding="utf-8")
    snippet, output = text.split("```python\n")[1].split("```\n\n```\n")
    environment = fresh_environment()
    environment.install(ROOT / "shared", package)
    assert environment.run(["python", "-c", snippet]).stdout == output.split("```")[0]


def test_the_workspace_of_the_root_would_take_it_in():
    root = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "packages/*" in root["tool"]["hatch"]["envs"]["default"]["workspace"]["members"]
    assert "project" not in root, "the root is not itself a package"


@pytest.mark.parametrize(
    "arguments",
    [
        ["Thistle", "--description", "x", "--paper", "https://example.org"],
        ["list", "--description", "x", "--paper", "https://example.org"],
        ["../thistle", "--description", "x", "--paper", "https://example.org"],
        ["thistle", "--description", 'a "b"', "--paper", "https://example.org"],
        ["thistle", "--description", "x", "--paper", "example.org"],
    ],
)
def test_bad_arguments(arguments, tmp_path, capsys):
    assert main([*arguments, "--into", str(tmp_path)]) == 2
    assert "error" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_existing_package_is_left_alone(tmp_path, capsys):
    (tmp_path / "thistle").mkdir()
    arguments = ["thistle", "--description", "x", "--paper", "https://example.org", "--into", str(tmp_path)]
    assert main(arguments) == 2
    assert list((tmp_path / "thistle").iterdir()) == []
