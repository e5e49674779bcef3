"""Benchmarks that survive a shared machine: callables in turn, paired ratios, fitted growth."""

from sprigs._errors import BenchMismatch
from sprigs.bench._compare import Comparison, compare
from sprigs.bench._scaling import Scaling, scaling

__all__ = ["BenchMismatch", "Comparison", "Scaling", "compare", "scaling"]
