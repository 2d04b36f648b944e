"""The search for a plan: the best of plain orders, then annealing from there."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.search.loops.annealing import anneal
from mirage.allocation.ddl.search.loops.layout import Goal, Orders
from mirage.allocation.ddl.search.loops.passing import starts_when_passing
from mirage.allocation.ddl.search.loops.playing import cost
from mirage.allocation.ddl.search.staging import scratch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.allocation.ddl.search.loops.layout import Scratch, Stage

Int64 = NDArray[np.int64]

GOALS = {"jct": Goal(1.0, 0.0), "makespan": Goal(0.0, 1.0)}

_BATCH = 200
"""Moves between two checks of the time."""
_HOT, _COLD = 0.05, 0.0005
"""Heat at the beginning and at the end, as a share of cost / tasks: about the effect of moving one task."""
_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of a search: it ends at the first that is reached."""

    tries: int = 20
    """Plans tried for each pending task."""
    seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of a search."""

    order: Int64
    """[P] Rows of the stage."""
    cost: float
    tried: int


def search(
    stage: Stage, running: int, goal: Goal, effort: Effort, rng: np.random.Generator, *known: Int64
) -> Plan:
    """A plan for the rows of ``stage`` from ``running`` on; ``known``: initial plans, besides plain ones."""
    scratch, began = scratch_of(stage), monotonic()
    first = (*known, *_plain(stage, scratch, running))
    begun = [(cost(stage, scratch, goal, order), order) for order in first]
    least, order = min(begun, key=lambda pair: pair[0])
    orders = Orders(order.copy(), order.copy(), order.copy(), np.array([least, least]))
    moves = effort.tries * len(order) if len(order) > 1 and np.isfinite(least) else 0
    tried = 0
    while tried < moves and (spent := monotonic() - began) < effort.seconds:
        heat = _heat(least / len(order), max(tried / moves, spent / effort.seconds))
        count = min(_BATCH, moves - tried)
        anneal(stage, scratch, goal, orders, rng.random((count, 5)), heat)
        tried += count
    return Plan(orders.best, float(orders.costs[0]), tried + len(begun))


def _heat(scale: float, progress: float) -> float:
    return max(float(scale * _HOT * (_COLD / _HOT) ** progress), 1e-300)


def _plain(stage: Stage, scratch: Scratch, running: int) -> Iterator[Int64]:
    """Orders by length x devices^exponent, up and down; and the order of starts, largest first, with passing."""
    rows = np.arange(running, len(stage.loads))
    length, devices = stage.loads["length"][rows], stage.loads["devices"][rows]
    for exponent in _EXPONENTS:
        ascending = rows[np.argsort(length * devices**exponent, kind="stable")]
        yield ascending
        yield ascending[::-1].copy()
    starts = np.zeros(len(stage.loads))
    longest = rows[np.argsort(-length * devices, kind="stable")]
    starts_when_passing(stage, scratch, longest, longest.copy(), starts)
    yield longest[np.argsort(starts[longest], kind="stable")]
