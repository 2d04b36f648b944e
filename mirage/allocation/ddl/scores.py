"""Scores that compiled code can compute without Python, for runs with preemption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.task import TaskTable
    from mirage.ports import Ordering

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearScores:
    """base + per_remaining x remaining + per_served x served; infinite where a value is unknown."""

    base: Float64
    per_remaining: Float64
    per_served: Float64

    @classmethod
    def constant(cls, scores: Float64) -> Self:
        """The same at every time."""
        return cls(scores, np.zeros(len(scores)), np.zeros(len(scores)))


@runtime_checkable
class LinearOrdering(Protocol):
    """An ordering policy with linear scores: with it a run with preemption is compiled as a whole, too."""

    def linear_scores(self, tasks: TaskTable) -> LinearScores | None:
        """Coefficients of ``score`` for all tasks; ``None`` where it is not linear."""


def linear_scores(ordering: Ordering, tasks: TaskTable) -> LinearScores | None:
    """The scores of an ordering policy where they are linear or constant; else ``None``."""
    linear = ordering.linear_scores(tasks) if isinstance(ordering, LinearOrdering) else None
    if linear is not None:
        return linear
    static = ordering.static_scores(tasks)
    return None if static is None else LinearScores.constant(static)
