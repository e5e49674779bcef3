"""Discover, load and check the methods installed beside an application, one at a time.

Importing this package imports neither click nor rich nor NumPy; `sprigs.bench`, `sprigs.data`, `sprigs.kernels`
and `sprigs.testing` are imported when they are first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sprigs.__about__ import __version__
from sprigs._claims import Claim, ClaimResult, Outcome, run_claims
from sprigs._entries import Entry
from sprigs._errors import (
    ApiTooNew,
    BadCard,
    BadHook,
    BenchMismatch,
    Blocked,
    DataMismatch,
    DataUnavailable,
    DuplicateName,
    ImportFailed,
    MissingExport,
    MissingExtra,
    PluginError,
    SprigsError,
    UnknownMethod,
)
from sprigs._hookspecs import hookimpl, hookspec
from sprigs._method import API_VERSION, Method, Paper
from sprigs._registry import Registry, get, load, methods, registry

if TYPE_CHECKING:
    from types import ModuleType

    from sprigs import bench, data, kernels, testing

__all__ = [
    "API_VERSION",
    "ApiTooNew",
    "BadCard",
    "BadHook",
    "BenchMismatch",
    "Blocked",
    "Claim",
    "ClaimResult",
    "DataMismatch",
    "DataUnavailable",
    "DuplicateName",
    "Entry",
    "ImportFailed",
    "Method",
    "MissingExport",
    "MissingExtra",
    "Outcome",
    "Paper",
    "PluginError",
    "Registry",
    "SprigsError",
    "UnknownMethod",
    "__version__",
    "bench",
    "data",
    "get",
    "hookimpl",
    "hookspec",
    "kernels",
    "load",
    "methods",
    "registry",
    "run_claims",
    "testing",
]

_SUBMODULES = frozenset({"bench", "data", "kernels", "testing"})


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f"sprigs.{name}")
    raise AttributeError(f"module 'sprigs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
