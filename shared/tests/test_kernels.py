"""The door to CUDA kernels. No device is needed: the launch itself goes to a recording stand-in of CuPy."""

import sys
import types

import numpy as np
import pytest

import sprigs.kernels
from sprigs.kernels import ArgumentError, KernelsUnavailable, LaunchError, Module, SignatureError, signatures

SOURCE = """
// extern "C" __global__ void commented_out(int x) {}
typedef unsigned short u16;
extern "C" __global__ void scale(const float* __restrict__ x, float* out, float factor, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * x[i];
}
/* extern "C" __global__ void also_commented(int x) {} */
extern "C" __global__ __launch_bounds__(256) void
vectors(const uint4 *x, u16 *y, WORD *z, void *any, long long k, bool flag)
{
}
extern "C" __global__ void bits(const __nv_bfloat16* x) { }
extern "C" __global__ void nothing() { }
static __device__ int helper(int a) { return a; }
"""


class Array:
    """What the door looks at in a `cupy.ndarray`, on top of NumPy."""

    def __init__(self, array, device=0, pointer=256):
        self.array = array
        self.dtype, self.shape, self.strides, self.nbytes = array.dtype, array.shape, array.strides, array.nbytes
        self.flags = types.SimpleNamespace(c_contiguous=array.flags.c_contiguous)
        self.device = types.SimpleNamespace(id=device)
        self.data = types.SimpleNamespace(ptr=pointer)


class Context:
    def __init__(self, log, *what):
        self.log, self.what = log, what
        self.id = what[1] if what[0] == "device" else None

    def __enter__(self):
        self.log.append(("enter", *self.what))

    def __exit__(self, *error):
        self.log.append(("exit", *self.what))


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in that records compilations, contexts and launches."""
    log = []

    class RawModule:
        def __init__(self, **options):
            log.append(("compile", options["options"]))

        def get_function(self, name):
            def launch(grid, block, args, shared_mem):
                log.append(("launch", name, grid, block, args, shared_mem))

            return launch

    class CUDARuntimeError(Exception):
        pass

    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=CUDARuntimeError)
    cuda = types.SimpleNamespace(
        runtime=runtime,
        Device=lambda index=0: Context(log, "device", index),
        get_current_stream=lambda: Context(log, "stream", "current"),
        ExternalStream=lambda pointer: Context(log, "stream", pointer),
    )
    module = types.SimpleNamespace(ndarray=Array, RawModule=RawModule, cuda=cuda, log=log)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.fixture
def module(tmp_path, monkeypatch):
    package = tmp_path / "kernels_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "all.cu").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield Module("kernels_of_a_test", "all.cu", options=("-DWORD=unsigned char",))
    sys.modules.pop("kernels_of_a_test", None)


def floats(n=8, **options):
    return Array(np.zeros(n, np.float32), **options)


def test_signatures():
    found = signatures(SOURCE, ["-DWORD=unsigned char", "-std=c++17"])
    assert list(found) == ["scale", "vectors", "bits", "nothing"]
    assert [(p.name, p.dtype, p.is_pointer, p.is_const) for p in found["scale"].parameters] == [
        ("x", "float32", True, True),
        ("out", "float32", True, False),
        ("factor", "float32", False, False),
        ("n", "uint32", False, False),
    ]
    assert [(p.name, p.dtype, p.lanes) for p in found["vectors"].parameters] == [
        ("x", "uint32", 4),
        ("y", "uint16", 1),
        ("z", "uint8", 1),
        ("any", None, 1),
        ("k", "int64", 1),
        ("flag", "bool", 1),
    ]
    assert found["nothing"].parameters == ()


@pytest.mark.parametrize("parameter", ["Thing* x", "int** x", "float", "long n", "unsigned long n"])
def test_unknown_types_are_named(parameter):
    with pytest.raises(SignatureError, match="kernel 'k'"):
        signatures(f'extern "C" __global__ void k({parameter}) {{}}')


def test_nothing_happens_before_the_first_launch(module, cupy):
    module["scale"]
    assert cupy.log == []
    with pytest.raises(SignatureError, match="'scal'"):
        module["scal"]


def test_launch(module, cupy):
    x, out = floats(), floats()
    module["scale"](3, (256,), (x, out, 2.0, 8), shared=64)
    assert cupy.log[:3] == [
        ("enter", "device", 0),
        ("enter", "stream", "current"),
        ("compile", ("-DWORD=unsigned char",)),
    ]
    _, name, grid, block, args, shared = cupy.log[3]
    assert (name, grid, block, shared) == ("scale", (3, 1, 1), (256, 1, 1), 64)
    assert args[:2] == (x, out)
    assert [type(a) for a in args[2:]] == [np.float32, np.uint32]
    assert cupy.log[4:] == [("exit", "stream", "current"), ("exit", "device", 0)]


def test_compiled_once_for_each_device(module, cupy):
    for device in (0, 0, 1, 1):
        x = floats(device=device)
        module["scale"](1, 1, (x, x, 1.0, 8))
    assert [entry[0] for entry in cupy.log].count("compile") == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (lambda: (floats(), floats(), 1.0), "takes 4 arguments .x, out, factor, n.; got 3"),
        (lambda: (Array(np.zeros(8)), floats(), 1.0, 8), "'x': expected dtype float32, got float64"),
        (lambda: (floats(), Array(np.zeros((4, 4), np.float32).T), 1.0, 8), "'out'.*strides"),
        (lambda: (floats(), Array(np.zeros(8, np.float32)[::2]), 1.0, 8), "'out'.*strides"),
        (lambda: (np.zeros(8, np.float32), floats(), 1.0, 8), "'x'.*on the host"),
        (lambda: ([1.0], floats(), 1.0, 8), "'x'.*got list"),
        (lambda: (floats(), floats(device=1), 1.0, 8), "several devices: 'x' on device 0, 'out' on device 1"),
        (lambda: (floats(), floats(), "2", 8), "'factor'.*'2'"),
        (lambda: (floats(), floats(), True, 8), "'factor'"),
        (lambda: (floats(), floats(), np.float64(2), 8), "'factor'.*float64"),
        (lambda: (floats(), floats(), 1.0, 8.0), "'n'.*integer"),
        (lambda: (floats(), floats(), 1.0, -1), "'n': -1 does not fit uint32"),
        (lambda: (floats(), floats(), 1.0, 2**32), "'n'.*does not fit"),
        (lambda: (floats(), floats(), np.zeros(2, np.float32), 8), "'factor'.*shape"),
    ],
)
def test_arguments_are_refused_by_name(module, cupy, args, said):
    with pytest.raises(ArgumentError, match=f"kernel 'scale'.*{said}|{said}") as caught:
        module["scale"](1, 32, args())
    assert "'scale'" in str(caught.value)
    assert not [entry for entry in cupy.log if entry[0] == "launch"]


def test_vector_pointers(module, cupy):
    def arguments(x):
        return (x, Array(np.zeros(1, np.uint16)), Array(np.zeros(1, np.uint8)), floats(), 1, True)

    module["vectors"](1, 32, arguments(Array(np.zeros(8, np.uint32))))
    with pytest.raises(ArgumentError, match="no whole number of uint4"):
        module["vectors"](1, 32, arguments(Array(np.zeros(7, np.uint32))))
    with pytest.raises(ArgumentError, match="16-byte alignment"):
        module["vectors"](1, 32, arguments(Array(np.zeros(8, np.uint32), pointer=264)))
    with pytest.raises(ArgumentError, match="'flag'"):
        module["vectors"](1, 32, (*arguments(Array(np.zeros(8, np.uint32)))[:5], 1))


def test_bits_serve_for_bfloat16(module, cupy):
    module["bits"](1, 1, (Array(np.zeros(4, np.uint16)),))
    with pytest.raises(ArgumentError):
        module["bits"](1, 1, (Array(np.zeros(4, np.int16)),))


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        (0, 32, 0),
        ((1, 0), 32, 0),
        ((1, 65_536), 32, 0),
        (2**31, 32, 0),
        (1, 0, 0),
        (1, 1025, 0),
        (1, (32, 64), 0),
        (1, (1, 1, 65), 0),
        (1, (32, 1, 1, 1), 0),
        (1.5, 32, 0),
        (1, 32, -1),
        (1, 32, 1 << 20),
    ],
)
def test_impossible_launches(module, cupy, grid, block, shared):
    with pytest.raises(LaunchError, match="kernel 'nothing'"):
        module["nothing"](grid, block, (), shared=shared)
    assert cupy.log == []


def test_large_shared_memory_is_asked_for(module, cupy):
    asked = []

    class Function:
        def __setattr__(self, name, value):
            asked.append((name, value))

        def __call__(self, *args, **options):
            asked.append("launched")

    cupy.RawModule.get_function = lambda self, name: Function()
    module["nothing"](1, 32, (), shared=100_000)
    assert asked == [("max_dynamic_shared_size_bytes", 100_000), "launched"]


def test_torch_tensors_bring_their_stream(module, cupy, monkeypatch):
    class Tensor:
        def __init__(self, n, contiguous=True, kind="cuda", dtype="torch.float32"):
            self.array = np.zeros(n, np.float32)
            self.device = types.SimpleNamespace(type=kind)
            self.dtype, self.shape = dtype, (n,)
            self.contiguous = contiguous

        def is_contiguous(self):
            return self.contiguous

        def stride(self):
            return (2,)

        def detach(self):
            return self

    stream = types.SimpleNamespace(cuda_stream=4242)
    torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(current_stream=lambda device: stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    cupy.from_dlpack = lambda tensor: Array(tensor.array)
    module["scale"](1, 32, (Tensor(8), Tensor(8), 1.0, 8))
    assert ("enter", "stream", 4242) in cupy.log
    with pytest.raises(ArgumentError, match="strides"):
        module["scale"](1, 32, (Tensor(8, contiguous=False), Tensor(8), 1.0, 8))
    with pytest.raises(ArgumentError, match="is on"):
        module["scale"](1, 32, (Tensor(8, kind="cpu"), Tensor(8), 1.0, 8))


def test_missing_cupy_says_what_to_install(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(KernelsUnavailable, match="pip install cupy-cuda12x"):
        module["nothing"](1, 32, ())


def test_no_device(module, cupy):
    cupy.cuda.runtime.getDeviceCount = lambda: 0
    with pytest.raises(KernelsUnavailable, match="no CUDA device"):
        module["nothing"](1, 32, ())

    def fail():
        raise cupy.cuda.runtime.CUDARuntimeError("driver too old")

    cupy.cuda.runtime.getDeviceCount = fail
    with pytest.raises(KernelsUnavailable, match="driver too old"):
        module["nothing"](1, 32, ())


@pytest.fixture
def afresh(here):
    """The default registry looks anew, before and after."""
    sprigs.registry().refresh()
    yield here
    sprigs.registry().refresh()


def test_missing_emulator_says_what_to_install(module, afresh):
    with pytest.raises(KernelsUnavailable, match="pip install sprigs-emulator"):
        module.emulate()


def test_the_emulator_is_found_through_the_registry(module, afresh):
    afresh.add(
        "emulator",
        "import sprigs\n"
        "def compile(source, options):\n    return source, options\n"
        "@sprigs.hookimpl\ndef sprigs_method():\n"
        "    exports = {'compile': f'{__name__}:compile'}\n"
        "    return sprigs.Method(name='emulator', title='t', paper=None, exports=exports)\n",
    )
    assert module.emulate() == (SOURCE, ("-DWORD=unsigned char",))


def test_reachable_from_the_package():
    assert sprigs.kernels.Module is Module
