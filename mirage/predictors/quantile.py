"""A quantile of the waits of recent jobs of the successor's class (size and limit)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import WaitForecast, Wants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation, RecentWaits
    from mirage.domain.job import JobRequest

NODE_BOUNDS = (1, 4, 16, 64, 256)
"""Upper bounds of the size classes, in nodes; a last class has none."""

LIMIT_BOUNDS = (3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600)
"""Upper bounds of the limit classes, in seconds; a last class has none."""

SEARCHED = 1_000
"""Jobs started last among which those of the class are looked for."""

USED = 100
"""At most so many of them, the latest, count: the queue of last month says little of today's."""

ENOUGH = 20
"""With fewer of the class, jobs of the limit class count whatever their size; failing that, all jobs."""

DEFAULT_LEVEL = 0.5
"""The median: least expected cost where interruption and overlap cost the same (the newsvendor's ratio,
``Weights.critical_level``); ``quantile:0.9`` leans towards overlap."""


class QuantileOfClass:
    """QBETS's question (Nurmi, Brevik & Wolski, JSSPP 2007), without its confidence bound."""

    wants = Wants(waits=SEARCHED)

    def __init__(self, level: float, name: str) -> None:
        if not 0 <= level <= 1:
            raise ValueError(f"the level must be within 0 and 1, not {level}")
        self.name = name
        self._level = level

    def predict(self, observation: Observation) -> WaitForecast:
        """Now plus the quantile of the class. Raises ``ValueError`` while no job has started."""
        waits = _of_class(observation.waits, observation.successor)
        if not len(waits):
            raise ValueError("no job has started yet")
        return WaitForecast.point(observation.time + _quantile(waits, self._level))


def _of_class(recent: RecentWaits, request: JobRequest) -> NDArray[np.int64]:
    """Waits of the latest jobs like ``request``, by the narrowest class that has enough."""
    same_limit = _within(recent.limit, request.limit, LIMIT_BOUNDS)
    same_class = recent.wait[same_limit & _within(recent.nodes, request.nodes, NODE_BOUNDS)]
    if len(same_class) >= ENOUGH:
        return same_class[-USED:]
    of_limit = recent.wait[same_limit]
    return (of_limit if len(of_limit) >= ENOUGH else recent.wait)[-USED:]


def _within(values: NDArray[np.int64], value: int, bounds: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which values lie in the same class as ``value``."""
    above = max((bound for bound in bounds if bound < value), default=-1)
    upto = min((bound for bound in bounds if bound >= value), default=None)
    member = values > above
    return member if upto is None else member & (values <= upto)


def _quantile(values: NDArray[np.int64], level: float) -> float:
    """Linear between order statistics, as ``np.quantile`` but without its tens of microseconds."""
    ordered = np.sort(values)
    place = level * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
