"""A virtual environment of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

_TIMEOUT = 900
# What a parent interpreter would otherwise leak into the environment under test.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class Environment:
    """A fresh virtual environment, and an empty folder from which its commands are run."""

    def __init__(self, folder: Path, *, system_site_packages: bool = False) -> None:
        """Make the environment; the pip of the running interpreter is used where it has one."""
        self.folder = folder
        self._work = folder / "work"
        self._own_pip = find_spec("pip") is None
        venv.create(
            folder / "venv",
            system_site_packages=system_site_packages,
            with_pip=self._own_pip,
            symlinks=os.name != "nt",
        )
        self._scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self._work.mkdir()

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self._scripts / ("python.exe" if os.name == "nt" else "python")

    def install(self, *specs: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> None:
        """`pip install` with these arguments. PIP_CONSTRAINT and the like hold as they are set.

        Raises:
            AssertionError: pip fails, with what it printed.
        """
        pip = [str(self.python), "-m", "pip"]
        if not self._own_pip:
            pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        quiet = {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.run(
            [*pip, "install", "--quiet", *(os.fspath(spec) for spec in specs)],
            env={**quiet, **(env or {})},
        )

    def run(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = _TIMEOUT,
        cwd: str | os.PathLike[str] | None = None,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; `python` and installed scripts are those of the environment.

        Args:
            args: the command and its arguments.
            env: variables to set besides the inherited ones.
            check: whether a failing command is an error.
            timeout: seconds.
            cwd: by default an empty folder, so that no checkout is importable by accident.
            input: text for the standard input.

        Raises:
            AssertionError: the command fails, with what it printed.
            subprocess.TimeoutExpired: it takes too long.
        """
        inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        path = os.pathsep.join([str(self._scripts), inherited.get("PATH", os.defpath)])
        command = [os.fspath(argument) for argument in args]
        command[0] = shutil.which(command[0], path=path) or command[0]
        done = subprocess.run(
            command,
            env={**inherited, "PATH": path, **(env or {})},
            cwd=self._work if cwd is None else cwd,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done
