"""Against the real thing: wheels, an editable install and the user site, made by pip."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HUB = Path(__file__).parents[1]
HOST = Path(__file__).parent / "hostapp"
README = (HUB / "README.md").read_text(encoding="utf-8")


def readme_files():
    """path -> text of the code blocks that begin with the path of a file."""
    blocks = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def write_package(folder, name, plugin=None):
    """The package of the README, under another name."""
    for path, text in readme_files().items():
        target = folder / path.replace("herb", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("herb", name))
    package = folder / "src" / f"sprigs_{name}"
    package.joinpath("py.typed").touch()
    if plugin is not None:
        package.joinpath("plugin.py").write_text(plugin)
    folder.joinpath("README.md").write_text(f"# {name}\n")
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Sources of the packages under test, by name."""
    root = tmp_path_factory.mktemp("packages")
    return {
        "herb": write_package(root / "herb", "herb"),
        "fern": write_package(root / "fern", "fern"),
        "weed": write_package(root / "weed", "weed", "raise RuntimeError('overgrown')\n"),
    }


@pytest.fixture(scope="module")
def wheels(packages, tmp_path_factory):
    """Wheels of the hub, the host and the packages, by the name of the project."""
    folder = tmp_path_factory.mktemp("wheels")
    isolated = find_spec("hatchling") is None
    command = [
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder,
        *([] if isolated else ["--no-build-isolation"]), HUB, HOST, *packages.values(),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


def test_the_readme_holds_a_whole_plugin():
    assert set(readme_files()) == {
        "pyproject.toml",
        "src/sprigs_herb/plugin.py",
        "src/sprigs_herb/leaves.py",
        "src/sprigs_herb/__init__.py",
    }


@pytest.mark.slow
def test_wheel_editable_and_user_site_are_found(fresh_environment, wheels, packages, tmp_path):
    # A virtual environment sees the user site only where it sees the system's packages.
    environment = fresh_environment(system_site_packages=True)
    user_site = {"PYTHONUSERBASE": str(tmp_path / "user")}
    environment.install(wheels["sprigs"], wheels["sprigs_herb"])
    environment.install("--no-deps", "--editable", packages["fern"])
    environment.install("--no-deps", "--user", wheels["sprigs_weed"], env=user_site)

    listed = json.loads(environment.run(["sprigs", "list", "--json"], env=user_site).stdout)
    found = {entry["name"]: entry["editable"] for entry in listed}
    assert found == {"fern": True, "herb": False, "weed": False}

    doctor = environment.run(["sprigs", "doctor"], env=user_site, check=False)
    assert doctor.returncode == 1
    assert "overgrown" in doctor.stderr

    # What the README tells people to write passes the contract, installed either way.
    code = "from sprigs.testing import check_method; check_method('herb'); check_method('fern')"
    environment.run(["python", "-c", code], env=user_site)

    without = json.loads(environment.run(["sprigs", "list", "--json"]).stdout)
    assert [entry["name"] for entry in without] == ["fern", "herb"]


@pytest.mark.slow
def test_host_application(fresh_environment, wheels):
    environment = fresh_environment()
    names = ("sprigs", "sprigs_herb", "sprigs_fern", "sprigs_weed", "greenhouse")
    environment.install(*(wheels[name] for name in names))
    report = json.loads(environment.run(["greenhouse"]).stdout)
    assert report == {
        "leaves": {"fern": 2, "herb": 2},
        "water": [9.0],
        "loaded": ["fern", "herb", "can"],
        "failed": {"weed": "pip install --upgrade sprigs-weed"},
    }
    blocked = json.loads(environment.run(["greenhouse"], env={"SPRIGS_BLOCK": "weed,fern"}).stdout)
    assert blocked["failed"] == {}
    assert blocked["leaves"] == {"herb": 2}
