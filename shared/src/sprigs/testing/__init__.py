"""The contract of a plugin as checks that any package can run on itself.

In a test file of the package::

@pytest.mark.parametrize(("title", "check"), sprigs.testing.checks("mine"))
def test_contract(title, check):
    check()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprigs.testing._checks import check_method, checks

__all__ = ["check_method", "checks"]


def __getattr__(name: str) -> object:
    # Lazy, since importing the pytest plugin beside it runs this file in every pytest of the user.
    if name in __all__:
        from sprigs.testing import _checks

        return getattr(_checks, name)
    raise AttributeError(f"module 'sprigs.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
