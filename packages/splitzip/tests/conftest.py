import numpy as np
import pytest

from sprigs_splitzip.backends import has_numba
from sprigs_splitzip.samples import DUMPS

BACKENDS = ["numpy", pytest.param("numba", marks=pytest.mark.skipif(not has_numba(), reason="numba is not installed"))]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def dump(sprigs_data):
    """Load one of the four real caches by name, or skip."""
    return lambda name: np.load(sprigs_data(DUMPS[name]))
