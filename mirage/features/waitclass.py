"""Which recent waits say something about a job: those of its class of size and limit."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.decision import RecentWaits
    from mirage.domain.job import JobRequest

Int64 = NDArray[np.int64]

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


def waits_of_class(recent: RecentWaits, request: JobRequest) -> Int64:
    """Waits in seconds of the latest jobs like ``request``, oldest start first.

    Of the narrowest class that has enough of them.
    """
    same_limit = _within(recent.limit, request.limit, LIMIT_BOUNDS)
    same_class = recent.wait[alike(recent.nodes, recent.limit, request)]
    if len(same_class) >= ENOUGH:
        return same_class[-USED:]
    of_limit = recent.wait[same_limit]
    return (of_limit if len(of_limit) >= ENOUGH else recent.wait)[-USED:]


def alike(nodes: Int64, limit: Int64, request: JobRequest) -> NDArray[np.bool_]:
    """Which jobs of these sizes and limits are of the request's very class."""
    return _within(nodes, request.nodes, NODE_BOUNDS) & _within(limit, request.limit, LIMIT_BOUNDS)


def class_of(request: JobRequest) -> tuple[int, int]:
    """Numbers of the request's classes of size and limit."""
    return bisect_left(NODE_BOUNDS, request.nodes), bisect_left(LIMIT_BOUNDS, request.limit)


def _within(values: Int64, value: int, bounds: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which values lie in the same class as ``value``."""
    above = max((bound for bound in bounds if bound < value), default=-1)
    upto = min((bound for bound in bounds if bound >= value), default=None)
    member = values > above
    return member if upto is None else member & (values <= upto)
