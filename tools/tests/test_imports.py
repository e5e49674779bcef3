"""Imports run one way."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from imports import violations


@pytest.mark.parametrize(
    ("path", "code", "allowed"),
    [
        ("packages/mpdc/src/sprigs_mpdc/a.py", "import sprigs", True),
        ("packages/mpdc/src/sprigs_mpdc/a.py", "from sprigs_mpdc import b", True),
        ("packages/mpdc/src/sprigs_mpdc/a.py", "from sprigs_splat.raster import c", True),
        ("packages/mpdc/src/sprigs_mpdc/a.py", "def f():\n    import sprigs_sport", False),
        ("packages/mpdc/src/sprigs_mpdc/a.py", "import sprigs_emulator", False),
        ("packages/mpdc/tests/test_a.py", "import sprigs_emulator", True),
        ("packages/mpdc/tests/test_a.py", "import sprigs_sport", False),
        ("packages/mpdc/benchmarks/bench_a.py", "import sprigs_sport", False),
        ("packages/splat/src/sprigs_splat/a.py", "import sprigs_mpdc", False),
        ("shared/src/sprigs/a.py", "import sprigs_mpdc", False),
        ("shared/tests/test_a.py", "import sprigs_mpdc", False),
    ],
)
def test_direction(tmp_path, path, code, allowed):
    for package in ("mpdc", "splat", "sport", "emulator"):
        (tmp_path / "packages" / package / "src").mkdir(parents=True)
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    found = list(violations(tmp_path))
    assert bool(found) != allowed
    if found:
        assert str(Path(path)) in found[0]
