"""The kernels' launcher on top of the emulator."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=64)
def emulate(module):
    return module.emulate()


class EmulatedDevice:
    """A `kernels.Device` on the CPU; further arguments go to every launch."""

    def __init__(self, **options):
        self.options = {"checks": "all", **options}

    def array(self, array):
        return array

    def empty(self, shape, dtype):
        # Every element must be written.
        return np.full(shape, np.nan, dtype)

    def launch(self, module, name, grid, block, args):
        emulate(module)[name](grid, block, args, **self.options)
