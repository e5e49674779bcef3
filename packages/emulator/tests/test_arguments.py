"""Arguments are checked at the door, as a device would not."""

import ml_dtypes
import numpy as np
import pytest

import sprigs_emulator as emulator

TEXT = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct Box { int a; float b; };
struct Crate { int items[100]; };
extern "C" __global__ void scale(const float* __restrict__ x, float* y, int n, float f, double d, bool b,
                                 unsigned char c, long long l) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] * f + (float)d + b + c + (float)l;
}
extern "C" __global__ void narrow(const __half* h, const __nv_bfloat16* b, const float4* v, const void* p,
                                  const uint4* raw, __half s) {}
extern "C" __global__ void structs(Box box, const Box* boxes, int* out) {
    *out = box.a + (int)box.b + boxes[1].a;
}
extern "C" __global__ void crates(Crate crate, int* out) { out[threadIdx.x] = crate.items[99 - threadIdx.x]; }
extern "C" __global__ void add_in_place(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
extern "C" __global__ void align(const float* x, int* out) { *out = (int)((unsigned long long)x % 16); }
extern "C" __global__ void nothing() {}
extern "C" __global__ void empty(const float* x, int n, int* seen) { if (n > 0) *seen = (int)x[0]; else *seen = 1; }
"""


@pytest.fixture(scope="module")
def module():
    return emulator.compile(TEXT)


def good():
    return [np.ones(4, np.float32), np.zeros(4, np.float32), 4, 2.0, 0.5, True, 3, -1]


def test_scalars_arrive(module):
    args = good()
    module["scale"](1, 4, args)
    assert args[1].tolist() == [2 + 0.5 + 1 + 3 - 1] * 4
    args[2:] = [np.int32(4), np.float32(2), np.float64(1.5), np.bool_(False), np.uint8(3), np.int64(5)]
    module["scale"](1, 4, args)
    assert args[1].tolist() == [2 + 1.5 + 0 + 3 + 5] * 4


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, [1.0] * 4, "expected a NumPy array for const float32*, given list"),
        (0, np.ones(4), "argument 1, `x`: the kernel takes const float32*, given an array of float64"),
        (0, np.ones((4, 4), np.float32).T, "not C-contiguous"),
        (0, np.ones(8, np.float32)[::2], "not C-contiguous"),
        (0, 3, "expected a NumPy array or None|expected a NumPy array for"),
        (1, np.broadcast_to(np.float32(1), (1,)), "read-only"),
        (2, 2**31, "2147483648 does not fit into int32"),
        (2, np.int64(4), "takes int32, given int64: on a device the bytes would be misread"),
        (2, 4.0, "takes int32, given float 4.0"),
        (2, np.ones(1, np.int32), "takes int32, given ndarray"),
        (2, "4", "takes int32, given str"),
        (3, np.float64(2), "takes float32, given float64"),
        (5, 1, "takes bool, given int 1"),
        (6, 256, "256 does not fit into unsigned8"),
        (6, np.int8(3), "given int8"),
        (7, np.uint64(3), "given uint64"),
    ],
)
def test_what_does_not_fit_is_refused(module, position, value, message):
    args = good()
    args[position] = value
    with pytest.raises(emulator.LaunchError, match=message.replace("*", r"\*")):
        module["scale"](1, 4, args)
    assert (args[1] == (1 if position == 1 else 0)).all()


def test_number_of_arguments(module):
    with pytest.raises(
        emulator.LaunchError, match=r"scale\(const float32\* x, float32\* y.* takes 8 arguments, given 2"
    ):
        module["scale"](1, 4, good()[:2])
    module["nothing"](1, 1, ())


def test_dtypes_of_narrow_floats_and_vectors(module):
    h, b = np.zeros(4, np.float16), np.zeros(4, ml_dtypes.bfloat16)
    v, raw = np.zeros(8, np.float32), np.zeros(32, np.uint8)
    module["narrow"](1, 1, (h, b, v, None, raw, np.float16(1)))
    module["narrow"](1, 1, (h.view(np.uint16), b.view(np.uint16), v, h, b, 1.0))
    for position, bad in ((0, b), (1, h), (2, v.view(np.int32)), (5, np.float32(1))):
        args = [h, b, v, None, raw, 1.0]
        args[position] = bad
        with pytest.raises(emulator.LaunchError, match=f"argument {position + 1}"):
            module["narrow"](1, 1, args)


def test_structs_by_value_and_pointer(module):
    dtype = np.dtype([("a", np.int32), ("b", np.float32)])
    boxes, out = np.array([(1, 2.0), (3, 4.0)], dtype), np.zeros(1, np.int32)
    module["structs"](1, 1, (boxes[0], boxes, out))
    assert out[0] == 1 + 2 + 3
    crate = np.zeros(1, [("items", np.int32, 100)])
    crate["items"] = np.arange(100)
    many = np.zeros(100, np.int32)
    module["crates"](1, 100, (crate[0], many))
    np.testing.assert_array_equal(many, np.arange(100)[::-1])
    with pytest.raises(emulator.LaunchError, match="structured NumPy scalar or bytes of 8 bytes"):
        module["structs"](1, 1, (5, boxes, out))


def test_one_array_twice_is_one_array(module):
    x = np.arange(100, dtype=np.int32)
    module["add_in_place"](4, 32, (x, x, 100))
    np.testing.assert_array_equal(x, 2 * np.arange(100))


def test_overlapping_views_keep_their_distance(module):
    x = np.arange(100, dtype=np.int32)
    module["add_in_place"](1, 50, (x[50:], x[:50], 50))
    np.testing.assert_array_equal(x[:50], 2 * np.arange(50) + 50)
    y = np.zeros(101, np.int32)
    with pytest.raises(emulator.RacecheckError):
        module["add_in_place"](1, 100, (y[:100], y[1:], 100))


def test_a_slice_is_as_aligned_as_on_a_device(module):
    out, x = np.zeros(1, np.int32), np.zeros(100, np.float32)
    for seed in (0, 1):
        for start in (0, 1, 2, 3, 4):
            module["align"](1, 1, (x[start:], out), seed=seed)
            assert out[0] == 4 * start % 16


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_empty_arrays(module, checks):
    seen = np.zeros(1, np.int32)
    module["empty"](1, 1, (np.zeros(0, np.float32), 0, seen), checks=checks)
    assert seen[0] == 1
    for seed in (0, 1):
        with pytest.raises(emulator.MemcheckError, match=r"x\[0\], out of bounds: x has 0 elements"):
            module["empty"](1, 1, (np.zeros(0, np.float32), 1, seen), checks=checks, seed=seed)


@pytest.mark.parametrize(
    ("launch", "error", "message"),
    [
        ({"grid": 0}, emulator.LaunchError, "grid"),
        ({"grid": (1, 1, 1, 1)}, emulator.LaunchError, "grid"),
        ({"grid": (1, 70000)}, emulator.LaunchError, "grid"),
        ({"block": 1025}, emulator.LaunchError, "block"),
        ({"block": (33, 32)}, emulator.LaunchError, "at most 1024"),
        ({"grid": (2**31 - 1, 65535)}, emulator.LaunchError, "32 bits"),
        ({"shared": -1}, emulator.LaunchError, "shared"),
        ({"shared": 300000}, emulator.LaunchError, "232448"),
        ({"checks": "some"}, ValueError, "checks"),
        ({"atomic_order": "int"}, ValueError, "atomic_order"),
        ({"interleave": 0}, ValueError, "interleave"),
        ({"delay_block": -2}, ValueError, "delay_block"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": []}, ValueError, "seed"),
        ({"stack": 1}, ValueError, "stack"),
        ({"written_fully": "y"}, TypeError, "written_fully"),
        ({"written_fully": ["z"]}, emulator.LaunchError, "'z'"),
        ({"written_fully": [2]}, emulator.LaunchError, "`n`, which is no array"),
    ],
)
def test_impossible_launches(module, launch, error, message):
    with pytest.raises(error, match=message):
        module["scale"](**{"grid": 1, "block": 4, "args": good(), **launch})


def test_reprs_and_errors_tell(module):
    assert repr(module).startswith("<Emulated kernel.cu: scale, narrow")
    assert repr(module["add_in_place"]) == "<Kernel add_in_place(const int32* x, int32* y, int32 n)>"
    with pytest.raises(emulator.LaunchError) as caught:
        module["nothing"](0, 1, ())
    assert caught.value.line is None
    with pytest.raises(AttributeError):
        _ = caught.value.nonsense
