"""The pytest plugin: two markers and two fixtures.

It is loaded by every pytest of an environment that has the hub, so it imports nothing until a
fixture is asked for, and adds no command-line option.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sprigs.data import DataFile
    from sprigs.testing._environment import Environment


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


@pytest.fixture
def sprigs_data() -> Callable[[DataFile], Path]:
    """The path of a data file; the test is skipped, with the reason, where it is not to be had."""
    from sprigs import DataUnavailable

    def path_of(file: DataFile) -> Path:
        try:
            return file.path()
        except DataUnavailable as reason:
            pytest.skip(str(reason))

    return path_of


@pytest.fixture
def fresh_environment(tmp_path: Path) -> Callable[..., Environment]:
    """Makes virtual environments: `install(*specs)`, `run(args)`, `python`."""
    from sprigs.testing._environment import Environment

    made: list[Environment] = []

    def make(*, system_site_packages: bool = False) -> Environment:
        folder = tmp_path / f"environment{len(made)}"
        folder.mkdir()
        made.append(Environment(folder, system_site_packages=system_site_packages))
        return made[-1]

    return make
