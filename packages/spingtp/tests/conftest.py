"""What every test shares."""

import importlib.util

import pytest
import torch


def pytest_configure(config):
    # e3nn's functions, and torch's own rules for forward-mode derivatives, are TorchScript.
    config.addinivalue_line("filterwarnings", "ignore:.torch.jit:DeprecationWarning")


@pytest.fixture
def double():
    """float64 by default: e3nn's rotation matrices are accurate to the default dtype alone."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


# A machine with no more than torch and CuPy runs what needs no more (`tools/gpu_check.py`).
collect_ignore = []
for module, files in {
    "e3nn": ("test_functional.py", "test_layers.py", "test_nn.py", "test_tables.py"),
    "hypothesis": ("test_functional.py", "test_nn.py", "test_tables.py"),
}.items():
    if importlib.util.find_spec(module) is None:
        collect_ignore += files
