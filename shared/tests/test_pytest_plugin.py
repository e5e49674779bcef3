"""The pytest plugin, run by a pytest of its own: markers, fixtures, and next to no weight."""

import json
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run_pytest(tmp_path, shelf):
    """Runs a test file in a fresh pytest."""

    def run(text, *arguments, **variables):
        file = tmp_path / "test_inner.py"
        file.write_text(textwrap.dedent(text))
        return subprocess.run(
            [
                sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-rs",
                "--strict-markers", *arguments, str(file),
            ],
            env=shelf.environment(**variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip

    return run


def test_markers(run_pytest):
    done = run_pytest("""
        import pytest

        @pytest.mark.slow
        @pytest.mark.gpu
        def test_it():
            pass
    """)
    assert "1 passed" in done.stdout


def test_featherweight_and_no_options(tmp_path):
    """Loading the plugin adds nothing heavy to what pytest itself imports."""
    code = """
        import json, sys
        import pytest
        before = set(sys.modules)
        import sprigs.testing.plugin
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    added = set(json.loads(done.stdout))
    tops = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert tops == {"sprigs"}  # pytest brings pluggy
    assert not {"sprigs.bench", "sprigs.data", "sprigs.testing._checks", "sprigs.cli"} & added
    import sprigs.testing.plugin

    assert not hasattr(sprigs.testing.plugin, "pytest_addoption")


def test_data_fixture_gives_the_path_or_skips_with_the_reason(run_pytest, tmp_path):
    import hashlib

    mirror = tmp_path / "mirror" / "thyme"
    mirror.mkdir(parents=True)
    mirror.joinpath("a.txt").write_bytes(b"leaf")
    mirror.joinpath("bad.txt").write_bytes(b"twig")
    sha = hashlib.sha256(b"leaf").hexdigest()
    done = run_pytest(
        f"""
        from sprigs.data import DataFile

        def file(name):
            return DataFile("thyme", name, "{sha}", "CC0", how="run the script")

        def test_there(sprigs_data):
            assert sprigs_data(file("a.txt")).read_bytes() == b"leaf"

        def test_not_there(sprigs_data):
            sprigs_data(file("b.txt"))

        def test_wrong(sprigs_data):
            sprigs_data(file("bad.txt"))
        """,
        SPRIGS_DATA=str(tmp_path / "mirror"),
    )
    # Wrong bytes are an error, never a skip.
    assert "1 failed, 1 passed, 1 skipped" in done.stdout
    assert "holds no thyme/b.txt" in done.stdout
    assert "run the script" in done.stdout
    assert "DataMismatch" in done.stdout


def test_checks_parametrise(run_pytest, shelf, add_good):
    add_good(shelf)
    done = run_pytest(
        """
        import pytest
        import sprigs.testing

        @pytest.mark.parametrize(("title", "check"), sprigs.testing.checks("herb"))
        def test_contract(title, check):
            check()
        """
    )
    assert "14 passed" in done.stdout, done.stdout


def test_fresh_environment(fresh_environment, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = fresh_environment()
    told = environment.run(["python", "-c", "import sys, os; print(sys.prefix, os.environ.get('PYTHONPATH'))"])
    assert told.stdout.split() == [str(environment.folder / "venv"), "None"]
    assert environment.python.exists()
    # Nothing of the surrounding environment is importable.
    with pytest.raises(AssertionError, match=r"exited with 1\n(?s:.*)No module named 'pluggy'"):
        environment.run(["python", "-c", "import pluggy"])
    assert environment.run(["python", "-c", "exit(3)"], check=False).returncode == 3
    assert fresh_environment().folder != environment.folder
