"""The CUDA kernels: simulated auctions (`auctions.cu`) and the enumeration of slates (`slates.cu`).

What launches them is a `Device`: the GPU through `sprigs.kernels`, or the emulator in the tests.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sprigs.kernels import KernelsUnavailable, Module, import_cupy

from ..errors import BackendUnavailable, SponsoredError

if TYPE_CHECKING:
    from ..instance import Array
    from ..simulation import SimulationConfig
    from ..slates import SlateInstance

SHARED_BYTES = 48 * 1024
_SLATE_THREADS = 128


class Device(Protocol):
    """Where kernels run."""

    def array(self, x: Any) -> Any:
        """Copy a host array to the device."""

    def empty(self, n: int, dtype: str) -> Any:
        """Make an uninitialised array."""

    def host(self, x: Any) -> Any:
        """Copy an array to the host."""

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...], shared: int) -> None:
        """Run a kernel."""


@lru_cache(maxsize=1)
def auctions_module() -> Module:
    """Return the simulator's kernel."""
    return Module("sprigs_sponsored.kernels", "auctions.cu", ("-std=c++17",))


@lru_cache(maxsize=64)
def slates_module(k: int, intents: int, advertisers: int) -> Module:
    """Return the enumeration for slates of k prompts; compiled for these numbers, which live in registers."""
    return Module(
        "sprigs_sponsored.kernels",
        "slates.cu",
        ("-std=c++17", f"-DSLATE={k}", f"-DINTENTS={intents}", f"-DADVERTISERS={advertisers}"),
    )


def doubles_per_warp(config: SimulationConfig) -> int:
    """Shared memory of an auction."""
    m, n, total = config.intents, config.advertisers, config.questions + 1
    rows = total * config.signals
    return m + m * rows + 4 * ((n * m + 1) // 2) + 3 * rows + total * n + 4 * total + n


def outcomes(device: Device, config: SimulationConfig, start: int, size: int, seed: int) -> Array:
    """As `simulation.batch`: metrics of auctions, shape (size, mechanisms, metrics).

    Raises:
        SponsoredError: An auction does not fit the 48 KiB of shared memory.
    """
    bytes_each = 8 * doubles_per_warp(config)
    warps = min(4, SHARED_BYTES // bytes_each)
    if not warps:
        raise SponsoredError(
            f"an auction of this size takes {bytes_each} bytes of shared memory, {SHARED_BYTES} are there"
        )
    utility = np.zeros(config.questions + 1) if config.question_utility is None else config.question_utility
    nothing = np.zeros(1)
    arrays = [nothing if x is None else x.reshape(-1) for x in (config.prior, config.kernel, config.values)]
    given = [int(x is not None) for x in (config.prior, config.kernel, config.values)]
    out = device.empty(size * 28, "float64")
    pairs = [part for array, flag in zip(arrays, given, strict=True) for part in (device.array(array), flag)]
    device.launch(
        auctions_module(), "simulate_auctions", -(-size // warps), 32 * warps,
        (out, size, start, seed, config.intents, config.questions, config.signals, config.advertisers, *pairs,
         float(config.sigma), float(config.active), device.array(utility), float(config.rho)),
        warps * bytes_each,
    )  # fmt: skip
    result: Array = np.asarray(device.host(out)).reshape(size, 7, 4)
    return result


def enumerate_slates(device: Device, instance: SlateInstance, size: int) -> tuple[float, int, Array]:
    """Welfare and number of the best slate of exactly `size` prompts, and the best welfare without each advertiser.

    Raises:
        SponsoredError: The model is not `mnl`, or the tables do not fit shared memory.
    """
    if instance.model != "mnl":
        raise SponsoredError("the kernel enumerates slates of the MNL model")
    prompts, m = instance.prompts.shape
    n = len(instance.values)
    if not 1 <= size <= 5 or prompts > 4096:
        raise SponsoredError(f"the kernel takes 1..5 out of at most 4096 prompts; got {size} out of {prompts}")
    shared = 8 * (prompts + n) * m
    if shared > SHARED_BYTES - 16 * _SLATE_THREADS:
        raise SponsoredError(f"tables of {shared} bytes do not fit shared memory")
    binomial = np.array([[math.comb(x, j) for j in range(size + 1)] for x in range(prompts + 1)], np.uint64)
    count = math.comb(prompts, size)
    blocks = max(1, min(4096, -(-count // _SLATE_THREADS)))
    best = device.empty(blocks, "float64")
    slate = device.empty(blocks, "uint64")
    without = device.empty(blocks * n, "float64")
    device.launch(
        slates_module(size, m, n), "enumerate_slates", blocks, _SLATE_THREADS,
        (device.array(np.exp(instance.prompts).reshape(-1)), device.array(instance.weighted.reshape(-1).copy()),
         device.array(binomial.reshape(-1)), prompts, count, best, slate, without),
        shared,
    )  # fmt: skip
    values = np.asarray(device.host(best))
    top = float(values.max())
    near = values >= top - 1e-12 * max(1.0, top)
    return (
        top,
        int(np.asarray(device.host(slate))[near].min()),
        np.asarray(device.host(without)).reshape(blocks, n).max(0),
    )


def gpu() -> Device:
    """Return the current GPU, through CuPy.

    Raises:
        BackendUnavailable: CuPy is not installed, or sees no device.
    """
    try:
        return _CuPy(import_cupy())
    except KernelsUnavailable as error:
        raise BackendUnavailable(str(error)) from error


class _CuPy:
    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy

    def array(self, x: Any) -> Any:
        return self.cupy.asarray(x)

    def empty(self, n: int, dtype: str) -> Any:
        return self.cupy.empty(n, dtype)

    def host(self, x: Any) -> Any:
        return x.get()

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...], shared: int) -> None:
        module[name](grid, block, args, shared=shared)
