"""The pytest fixture `kernel_backend`: a kernel test runs emulated and, marker `gpu`, on the device.

It is loaded by every pytest of an environment that has the package, so it imports nothing until the fixture is asked
for, and adds no option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .backends import Backend


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


@pytest.fixture(params=["emulated", pytest.param("device", marks=pytest.mark.gpu)])
def kernel_backend(request: pytest.FixtureRequest) -> Backend:
    """Compiles and launches kernels on NumPy arrays: `kernel_backend.compile(text)["add"](grid, block, args)`.

    The test is skipped, with the reason, where there is no C++ compiler or no device.
    """
    from .backends import BackendUnavailable, device, emulated

    try:
        return emulated() if request.param == "emulated" else device()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
