"""SciPy, imported only when a linear programme is solved, because few installations need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


def scipy_modules() -> tuple[ModuleType, ModuleType]:
    """``scipy.optimize`` and ``scipy.sparse``. Raises ``MissingExtra`` where SciPy is not installed."""
    try:
        from scipy import optimize, sparse
    except ImportError as error:
        raise MissingExtra("Solving linear programmes", "bounds") from error
    return optimize, sparse
