"""The view that an ordering and a placer get of a real allocation, made from the ledger and the book."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.pool import PoolView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.allocation.engine.book import Book
    from mirage.allocation.engine.ledger import Ledger
    from mirage.allocation.engine.plan import WorkPlan
    from mirage.domain.pool import SpeedTable
    from mirage.domain.task import TaskTable


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that does not change within a life."""

    plan: WorkPlan
    table: TaskTable
    speeds: SpeedTable
    zero: float
    """Epoch seconds of the table's own zero."""

    def view(
        self, now: float, pending: Sequence[int], running: Mapping[int, float], book: Book, ledger: Ledger
    ) -> PoolView:
        """``pending``: rows, the running ones that can be preempted among them; ``running``: start by row."""
        count = len(self.plan.tasks)
        held = [sorted(book.holdings[row].devices) if row in book.holdings else [] for row in range(count)]
        first = [book.holdings[row].nodes[0] if row in book.holdings else -1 for row in range(count)]
        cpus, memory = book.free_nodes()
        served = self._served(now, running, ledger)
        return PoolView(
            now=now - self.zero,
            pool=book.pool,
            tasks=self.table,
            speeds=self.speeds,
            pending=np.array(sorted(pending), np.int32),
            running=np.array(sorted(running.keys() & book.holdings.keys()), np.int32),
            held_from=np.array([0, *itertools.accumulate(map(len, held))], np.int32),
            held=np.array(list(itertools.chain.from_iterable(held)), np.int32),
            task_node=np.array(first, np.int32),
            free=book.free_devices(),
            free_cpus=cpus,
            free_memory_mb=memory,
            served=served,
            remaining=np.array([self._remaining(row, served[row]) for row in range(count)]),
        )

    def _served(self, now: float, running: Mapping[int, float], ledger: Ledger) -> np.ndarray:
        """[T] Seconds that were not lost: earlier attempts' and the running one's."""
        served = np.array([ledger.served(task.name) for task in self.plan.tasks], np.float64)
        for row, start in running.items():
            served[row] += now - start
        return served

    def _remaining(self, row: int, served: float) -> float:
        expected = self.plan.tasks[row].expected
        return math.nan if expected is None else max(0.0, expected - served)
