"""Patience: a task that could run on fewer nodes waits for them instead of being spread over more.

``patient:NAME`` places as the placement policy NAME does, every task on as few nodes as it needs in the empty
pool. Tasks do not wait indefinitely if such nodes are down: while nothing runs and nothing can be placed in this
way, the first task that fits at all is placed as NAME would place it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.placers.compiled import CompiledPlacer
from mirage.allocation.ddl.placers.confining import Confined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Placer


class Patient:
    """A placement policy that is not compiled, with patience."""

    def __init__(self, inner: Placer) -> None:
        self.name = f"patient:{inner.name}"
        self._inner = inner
        self._confined = Confined()

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        """See ``ports.Placer``."""
        found = self._inner.place(
            replace(view, tasks=self._confined.of(view.tasks, view.pool)), order, strict=strict
        )
        if found or len(view.running):
            return found
        return self._inner.place(view, order, strict=strict)[:1]


def patient(name: str) -> Placer:
    """The placement policy ``name`` with patience. Raises ``UnknownPolicy`` for an unknown name."""
    inner = registry.placer(name)
    return CompiledPlacer(inner.name, patient=True) if isinstance(inner, CompiledPlacer) else Patient(inner)
