import functools
from pathlib import Path

import pytest

import sprigs_emulator as emulator

KERNELS = Path(__file__).parent / "kernels"


@functools.cache
def compiled(name, *expressions):
    """One compiled file for all tests that use it."""
    return emulator.compile((KERNELS / name).read_text(), name_expressions=expressions, filename=name)


@pytest.fixture
def kernels():
    return compiled
