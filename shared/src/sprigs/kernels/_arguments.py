"""Checking a kernel's arguments, and turning them into what CuPy launches with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sprigs.kernels._errors import ArgumentError
from sprigs.kernels._signature import Parameter, Signature

_RANGES = {
    f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits if sign else bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class Prepared:
    """Arguments ready to launch, the device they live on, and torch's device if any came from torch."""

    values: tuple[Any, ...]
    device: int | None
    torch_device: Any


def prepare(signature: Signature, arguments: Sequence[Any], cupy: Any) -> Prepared:
    """Check `arguments` against `signature`; exchange torch tensors by DLPack, without copies.

    Raises:
        ArgumentError: A wrong number, a wrong type, a view with strides, an array on the host, or arrays on several
            devices. Kernel and parameter are named.
    """
    if len(arguments) != len(signature.parameters):
        names = ", ".join(p.name for p in signature.parameters)
        raise ArgumentError(
            f"kernel {signature.name!r} takes {len(signature.parameters)} arguments ({names}); got {len(arguments)}"
        )
    values = []
    devices: dict[int, str] = {}
    torch_device = None
    for parameter, argument in zip(signature.parameters, arguments, strict=True):
        where = f"kernel {signature.name!r}, argument {parameter.name!r}"
        if not parameter.is_pointer:
            values.append(_scalar(where, parameter, argument))
            continue
        array = argument
        if _is_torch(argument):
            torch_device = argument.device
            array = _from_torch(where, argument, cupy)
        _check_array(where, parameter, array, cupy)
        devices.setdefault(int(array.device.id), parameter.name)
        values.append(array)
    if len(devices) > 1:
        told = ", ".join(f"{name!r} on device {device}" for device, name in devices.items())
        raise ArgumentError(f"kernel {signature.name!r}: the arrays live on several devices: {told}")
    return Prepared(tuple(values), next(iter(devices), None), torch_device)


def _check_array(where: str, parameter: Parameter, argument: Any, cupy: Any) -> None:
    if not isinstance(argument, cupy.ndarray):
        if hasattr(argument, "__array_interface__") or hasattr(argument, "__array__"):
            raise ArgumentError(f"{where}: the array is on the host; copy it to the device with cupy.asarray first")
        raise ArgumentError(
            f"{where}: expected a CuPy array or torch CUDA tensor of {parameter.dtype}; got {type(argument).__name__}"
        )
    # NumPy has no bfloat16, so an array of its bits serves too.
    bits = parameter.dtype == "bfloat16" and str(argument.dtype) == "uint16"
    if parameter.dtype is not None and str(argument.dtype) != parameter.dtype and not bits:
        raise ArgumentError(
            f"{where}: expected dtype {parameter.dtype}, got {argument.dtype}; convert it, or view its bits"
        )
    if not argument.flags.c_contiguous:
        raise ArgumentError(
            f"{where}: the array of shape {argument.shape} is a view with strides {argument.strides}; kernels ignore"
            " strides: pass cupy.ascontiguousarray(x), or x.contiguous() in torch"
        )
    if parameter.lanes > 1 and argument.nbytes:
        size = argument.dtype.itemsize * parameter.lanes
        if argument.nbytes % size:
            raise ArgumentError(f"{where}: {argument.nbytes} bytes are no whole number of {parameter.c_type}")
        # A three-lane vector is aligned like one lane; the others like themselves, at most 16 bytes.
        align = argument.dtype.itemsize if parameter.lanes == 3 else min(size, 16)
        if argument.data.ptr % align:
            raise ArgumentError(f"{where}: {parameter.c_type} needs {align}-byte alignment; the array begins between")


def _scalar(where: str, parameter: Parameter, argument: Any) -> Any:
    import numpy as np

    dtype = str(parameter.dtype)
    if parameter.lanes > 1 or dtype == "bfloat16":
        raise ArgumentError(f"{where}: {parameter.c_type} cannot be passed by value; pass a pointer or plain scalars")
    if hasattr(argument, "shape") and argument.shape != ():
        raise ArgumentError(f"{where}: expected a {dtype} scalar; got an array of shape {argument.shape}")
    if isinstance(argument, np.generic) and str(argument.dtype) != dtype:
        raise ArgumentError(f"{where}: expected {dtype}; got {argument.dtype}")
    is_bool = isinstance(argument, (bool, np.bool_))
    if dtype in _RANGES:
        low, high = _RANGES[dtype]
        if is_bool or not isinstance(argument, (int, np.integer)):
            raise ArgumentError(f"{where}: expected an integer for {dtype}; got {argument!r}")
        if not low <= int(argument) <= high:
            raise ArgumentError(f"{where}: {argument} does not fit {dtype}")
    elif dtype == "bool":
        if not is_bool:
            raise ArgumentError(f"{where}: expected a bool; got {argument!r}")
    elif is_bool or not isinstance(argument, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"{where}: expected a number for {dtype}; got {argument!r}")
    return np.dtype(dtype).type(argument)


def _is_torch(argument: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(argument, torch.Tensor)


def _from_torch(where: str, tensor: Any, cupy: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.device.type != "cuda":
        raise ArgumentError(f"{where}: the tensor is on {tensor.device}; move it to the device with .cuda() first")
    if not tensor.is_contiguous():
        raise ArgumentError(
            f"{where}: the tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}; kernels ignore strides:"
            " pass x.contiguous()"
        )
    detached = tensor.detach()
    name = str(detached.dtype).removeprefix("torch.")
    # What NumPy's type system, which CuPy shares, does not know crosses as bits.
    if name == "bfloat16":
        return cupy.from_dlpack(detached.view(torch.int16)).view("uint16")
    if name.startswith("float8"):
        return cupy.from_dlpack(detached.view(torch.uint8))
    return cupy.from_dlpack(detached)
