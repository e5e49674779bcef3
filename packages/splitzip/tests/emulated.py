"""The kernels' launcher on top of the emulator, and a stand-in of CuPy that launches there."""

import contextlib
import types
from functools import lru_cache

import numpy as np

import sprigs_emulator
from sprigs_splitzip.kernels import Module


@lru_cache(maxsize=64)
def emulate(module: Module):
    return module.emulate()


class EmulatedDevice:
    """A `kernels.Device` on the CPU; further arguments go to every launch."""

    def __init__(self, **options):
        self.options = {"checks": "fast", **options}

    def empty(self, n, dtype):
        return np.full(n, 0xAB, dtype)  # what an uninitialised array holds must not matter

    def zeros(self, n, dtype):
        return np.zeros(n, dtype)

    def upload(self, x):
        return x.copy()

    def address(self, x):
        return x.ctypes.data

    def launch(self, module, name, grid, block, args):
        emulate(module)[name](grid, block, args, **self.options)


class Array(np.ndarray):
    """A NumPy array that passes for a `cupy.ndarray`."""

    @property
    def __cuda_array_interface__(self):
        return self.__array_interface__

    @property
    def device(self):
        return types.SimpleNamespace(id=0)

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        return np.array(self, subok=False)

    def set(self, data):
        self[...] = data


def stand_in() -> types.SimpleNamespace:
    """Return a module with what splitzip and the kernel door use of CuPy; launches run under the emulator."""

    def on_device(x):
        return np.asarray(x).copy().view(Array)

    def aligned(n, dtype, value=0xAB):
        size = int(n) * np.dtype(dtype).itemsize
        buffer = np.full(size + 512, value, np.uint8)
        start = -buffer.ctypes.data % 512
        return buffer[start : start + size].view(dtype).view(Array)

    def as_strided(x, shape, strides):
        return np.lib.stride_tricks.as_strided(x, shape, strides).view(Array)

    class RawModule:
        def __init__(self, code, options, backend):
            self.kernels = sprigs_emulator.compile(code, options=options)

        def get_function(self, name):
            def launch(grid, block, args, shared_mem):
                plain = [np.asarray(a).view(np.ndarray) if isinstance(a, Array) else a for a in args]
                self.kernels[name](grid, block, plain, shared=shared_mem, checks="fast")

            return launch

    class Device:
        def __init__(self, index=0):
            self.id = index

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    class CUDARuntimeError(Exception):
        pass

    cuda = types.SimpleNamespace(
        Device=Device,
        runtime=types.SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=CUDARuntimeError),
        get_current_stream=contextlib.nullcontext,
        ExternalStream=lambda pointer: contextlib.nullcontext(),
    )
    return types.SimpleNamespace(
        ndarray=Array,
        asarray=lambda x: x if isinstance(x, Array) else on_device(x),
        ascontiguousarray=lambda x: np.ascontiguousarray(x).view(Array),
        empty=aligned,
        zeros=lambda n, dtype: aligned(n, dtype, 0),
        from_dlpack=lambda x: x,
        concatenate=lambda parts: np.concatenate(parts).view(Array),
        lib=types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=as_strided)),
        RawModule=RawModule,
        cuda=cuda,
    )
