"""Compile the pool kernel's functions that ``mirage allocation`` calls, before devices wait for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.das.choosing import Settling
from mirage.allocation.ddl.das.sight import sight_of
from mirage.allocation.ddl.dispatch import Rules, dispatch
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.allocation.engine.book import Book
from mirage.allocation.engine.demands import nothing_known, task_table
from mirage.allocation.engine.discovery import Allocation, Device, NodeFound
from mirage.allocation.engine.ledger import Ledger
from mirage.allocation.engine.plan import TaskSpec, WorkPlan
from mirage.allocation.engine.situation import Situation

_RULES = (Rules(), Rules(preempt=True), Rules(preempt=True, move=True))


def compile_pool() -> None:
    """Decide once about a small pool in every way, as ``allocation run`` does it and as a replay does.

    Of DAS: what its agents look at and how their opinions become placements, which no graph is needed for.

    What is compiled is kept in the user's cache (``mirage.simulator.kernel.compile``).
    """
    pool = Allocation((NodeFound("node", 1, 1, (Device(0, "gpu"),)),)).pool()
    plan = WorkPlan(Path(), (TaskSpec("task", ("true",), expected=1.0),))
    table, speeds = task_table(plan, pool, 0.0), nothing_known(1, 1)
    view = Situation(plan, table, speeds, 0.0).view(0.0, [0], {}, Book(pool), Ledger())
    for ordering in ("sjf", "searched"):
        for rules in _RULES:
            dispatch(view, registry.ordering(ordering), registry.placer("best-fit"), rules)
    Settling(sight_of(view)).add(np.zeros(1, np.int64), np.zeros((1, 1)), np.zeros(1))
    table.work[:] = 1.0
    for ordering in ("sjf", "srtf", "qssf"):
        for rules in _RULES:
            simulated = SimulatedPool(table, pool, speeds, rules)
            simulated.play(registry.ordering(ordering), registry.placer("best-fit"))
