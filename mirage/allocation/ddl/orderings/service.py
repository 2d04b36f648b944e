"""Ordering policies by device-time: the area of a task, all of it or the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.scores import LinearScores
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView
    from mirage.domain.task import TaskTable


def width(tasks: TaskTable) -> NDArray[np.float64]:
    """[T] Devices, with shares counted as such; at least a small number, to order tasks without devices."""
    return np.maximum(tasks.devices * tasks.share, 1e-3)


class LeastRemaining:
    """Estimated time left times devices to a power; tasks without an estimate come last.

    The power 0 is SRTF, 1 is SRSF (Gu et al., "Tiresias", NSDI 2019, section 3.1). Needs ``expected``.
    """

    def __init__(self, power: float = 1.0) -> None:
        """``power``: exponent of the number of devices."""
        self.power = power
        self.name = "srtf" if power == 0 else "srsf"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """Before a task starts, all of it is left."""
        return np.nan_to_num(tasks.expected, nan=np.inf) * self._factor(tasks)

    def linear_scores(self, tasks: TaskTable) -> LinearScores:
        """See ``scores.LinearOrdering``."""
        return LinearScores(np.zeros(len(tasks)), self._factor(tasks), np.zeros(len(tasks)))

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        left = np.nan_to_num(view.remaining[view.pending], nan=np.inf)
        return np.asarray(left * self._factor(view.tasks)[view.pending])

    def _factor(self, tasks: TaskTable) -> NDArray[np.float64]:
        return np.asarray(width(tasks) ** self.power)


class Area:
    """Estimated run time times devices, independent of progress; tasks without an estimate come last.

    The smallest first is Smith's rule on the pool as one machine: a lower bound of the mean completion time is
    based on this order. The largest first (LPT) is for the makespan. Needs ``expected``.
    """

    def __init__(self, name: str, *, largest: bool) -> None:
        """``largest``: the largest area first, instead of the smallest."""
        self.name = name
        self._sign = -1.0 if largest else 1.0

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.nan_to_num(self._sign * tasks.expected * width(tasks), nan=np.inf)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return self.static_scores(view.tasks)[view.pending]


def srtf() -> LeastRemaining:
    """The shortest remaining time first."""
    return LeastRemaining(0.0)


def srsf(power: str = "1") -> LeastRemaining:
    """The smallest remaining service first; raises ``ConfigError`` for an invalid power."""
    try:
        return LeastRemaining(float(power))
    except ValueError:
        raise ConfigError("ordering srsf", f"the power of the devices must be a number, not {power!r}") from None


def smallest_service() -> Area:
    """The smallest area first."""
    return Area("ssf", largest=False)


def lpt() -> Area:
    """The largest area first."""
    return Area("lpt", largest=True)
