"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

import sprigs

_EXPORTS = {
    "compile": "emulated",
    "Emulated": "emulated",
    "Kernel": "emulated",
    "find_compiler": "_compiler",
    "Fault": "errors",
    "EmulatorError": "errors",
    "CompileError": "errors",
    "CompilerNotFound": "errors",
    "LaunchError": "errors",
    "KernelAssertionError": "errors",
    "MemcheckError": "errors",
    "RacecheckError": "errors",
    "InitcheckError": "errors",
    "SynccheckError": "errors",
    "DeterminismError": "errors",
}


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="emulator",
        title="CUDA C kernels on the CPU, with memcheck, racecheck, initcheck and synccheck",
        paper=None,
        exports={name: f"sprigs_emulator.{module}:{name}" for name, module in _EXPORTS.items()},
        demo="sprigs_emulator.demo:demo",
        capabilities=("kernels.emulate.cuda",),
    )
