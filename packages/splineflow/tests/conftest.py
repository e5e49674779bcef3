"""What every test shares."""

import importlib.util

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Nets here are small: threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# A machine with no more than torch and CuPy runs what needs no more (`tools/gpu_check.py`).
collect_ignore = []
for module, files in {
    "hypothesis": ("test_paths.py", "test_bsplines.py", "test_metrics.py", "test_couplings.py"),
    "ot": ("test_metrics.py", "test_couplings.py", "test_estimator.py", "test_package.py"),
    "safetensors": ("test_estimator.py",),
    "click": ("test_package.py",),
}.items():
    if importlib.util.find_spec(module) is None:
        collect_ignore += files
