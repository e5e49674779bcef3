"""Steady work allocates nothing beyond its output."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from sprigs_splitzip import Codebook, Codec
from sprigs_splitzip.backends import has_numba

pytestmark = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


def test_no_allocation_in_steady_state():
    x = (np.random.default_rng(0).normal(size=1 << 21).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for code_bits in (3, 4):
        codec = Codec(Codebook.from_samples([x], "bf16", code_bits=code_bits))
        frame = np.empty(codec.max_encoded_size(x, "bf16"), np.uint8)
        out = np.empty_like(x)
        for _ in range(2):
            size = codec.encode_into(x, frame, dtype="bf16")
            codec.decode(frame[:size], out=out)
        tracemalloc.start()
        try:
            for _ in range(3):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                size = codec.encode_into(x, frame, dtype="bf16")
                codec.decode(frame[:size], out=out)
                grown = tracemalloc.get_traced_memory()[1] - before
                assert grown < 64 * 1024, f"{grown} bytes for {x.nbytes} of data"
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_a_gibibyte_in_frames_stays_within_64_mib():
    code = """
import resource, numpy as np
from sprigs_splitzip import Codebook, Codec
x = np.random.default_rng(0).normal(size=1 << 22).astype(np.float32)
x = np.resize((x.view(np.uint32) >> 16).astype(np.uint16), 1 << 29)
out = np.zeros_like(x)
codec = Codec(Codebook.from_samples([x[:1000000]], "bf16"))
small = codec.encode(x[:1 << 20], dtype="bf16")
codec.decode(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = 0
for frame in codec.encode_frames(x, dtype="bf16"):
    codec.decode_frame(frame, out)
    total += frame.nbytes
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.array_equal(out, x)
print(after - before, total)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown_kib, total = map(int, done.stdout.split())
    assert total < 2**30 / 1.32
    assert grown_kib < 64 * 1024, f"peak RSS grew by {grown_kib} KiB"
