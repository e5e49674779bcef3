"""NumPy, ml_dtypes, torch and JAX arrays in and out."""

import sys

import ml_dtypes
import numpy as np
import pytest

from sprigs_splitzip import DeviceUnavailable, LayoutMismatch, SplitZipError, UnsupportedDtype, compress, decompress
from sprigs_splitzip.arrays import as_bits

NAMES = ["bfloat16", "float16", "float32", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"]


def random_bits(name, shape=(5, 9)):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    n = int(np.prod(shape))
    return np.random.default_rng(1).integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def unsigned(x):
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("name", NAMES)
def test_numpy(name):
    x = random_bits(name)
    restored = decompress(compress(x))
    assert restored.dtype == x.dtype
    assert np.array_equal(unsigned(restored), unsigned(x))


@pytest.mark.parametrize("name", NAMES)
def test_torch(name):
    torch = pytest.importorskip("torch")
    x = random_bits(name)
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.dtype.itemsize]
    bits = torch.from_numpy(x.view(f"i{x.dtype.itemsize}" if x.dtype.itemsize > 1 else "u1"))
    tensor = bits.view(getattr(torch, name))
    frame = compress(tensor)
    assert frame == compress(x), "the same bytes whichever library the array comes from"
    restored = decompress(frame, like="torch")
    assert restored.dtype == tensor.dtype
    assert restored.shape == tensor.shape
    assert torch.equal(restored.view(integer), bits)
    out = torch.empty_like(tensor)
    assert decompress(frame, out=out) is out
    assert torch.equal(out.view(integer), bits)


def test_torch_corners():
    torch = pytest.importorskip("torch")
    x = torch.randn(6, 4, dtype=torch.bfloat16)
    assert torch.equal(decompress(compress(x.T), like="torch"), x.T)
    scalar = torch.tensor(1.5, dtype=torch.bfloat16)
    assert torch.equal(decompress(compress(scalar), like="torch"), scalar)
    weight = torch.randn(3, dtype=torch.float32, requires_grad=True)
    assert torch.equal(decompress(compress(weight), like="torch"), weight.detach())
    assert decompress(compress(torch.empty(0, 3)), like="torch").shape == (0, 3)
    assert np.array_equal(
        decompress(compress(b"abc", dtype="opaque"), like="torch").numpy(), np.frombuffer(b"abc", "u1")
    )
    with pytest.raises(UnsupportedDtype, match="float64"):
        compress(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(UnsupportedDtype, match="complex64"):
        compress(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(UnsupportedDtype, match="bool"):
        compress(torch.zeros(2, dtype=torch.bool))
    with pytest.raises(UnsupportedDtype, match="bf16"):
        compress(torch.zeros(2, dtype=torch.int16))
    with pytest.raises(DeviceUnavailable, match="meta"):
        compress(torch.zeros(2, device="meta"))
    with pytest.raises(UnsupportedDtype, match="sparse"):
        compress(torch.eye(2).to_sparse())
    with pytest.raises(LayoutMismatch):
        decompress(compress(x), out=torch.empty(6, 4, dtype=torch.float16))
    assert compress(x.view(torch.int16), dtype="bf16") == compress(x)


@pytest.mark.parametrize("name", NAMES)
def test_jax(name):
    jax = pytest.importorskip("jax")
    x = random_bits(name)
    array = jax.numpy.asarray(x)
    assert array.dtype == x.dtype
    frame = compress(array)
    assert frame == compress(x)
    restored = decompress(frame, like="jax")
    assert isinstance(restored, jax.Array)
    assert restored.dtype == array.dtype
    assert np.array_equal(unsigned(np.asarray(restored)), unsigned(x))
    with pytest.raises(SplitZipError, match="immutable"):
        decompress(frame, out=array)


def test_dlpack_objects():
    class Exporter:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.arange(6, dtype=np.float32)
    assert compress(Exporter(x)) == compress(x)


def test_cuda_arrays_are_refused_not_copied():
    class OnDevice:
        __cuda_array_interface__ = {}  # noqa: RUF012

    with pytest.raises(DeviceUnavailable, match="CUDA"):
        compress(OnDevice())


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.zeros(3, np.float64), None),
        (np.zeros(3, np.complex64), None),
        (np.zeros(3, np.int64), None),
        (np.zeros(3, np.uint16), None),
        (np.zeros(3, np.uint16), "fp32"),
        (np.zeros(3, np.uint16), "int16"),
        (np.zeros(3, np.float32), "bf16"),
        (np.zeros(3, ">f4"), None),
        (np.zeros(3, object), None),
        (np.array(["a"]), None),
        ([1.0, 2.0], None),
        (b"abc", None),
        (None, None),
        (np.zeros(3, np.float32), 17),
    ],
)
def test_unsupported(x, dtype):
    with pytest.raises(UnsupportedDtype):
        compress(x, dtype=dtype)


def test_views_are_not_copies():
    x = np.zeros((4, 4), np.float16)
    assert np.shares_memory(as_bits(x).bits, x)
    assert not np.shares_memory(as_bits(x.T).bits, x)


def test_importing_the_package_loads_neither_torch_nor_jax_nor_numba():
    import subprocess

    code = (
        "import sys, numpy as np, sprigs_splitzip as s; s.decompress(s.compress(np.zeros(9, np.float32)));"
        "print([m for m in ('torch', 'jax', 'numba', 'matplotlib', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_asking_for_a_library_that_is_missing(monkeypatch):
    frame = compress(np.zeros(3, np.float32))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceUnavailable, match=r"sprigs-splitzip\[torch\]"):
        decompress(frame, like="torch")
