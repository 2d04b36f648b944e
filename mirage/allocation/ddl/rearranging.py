"""Decisions with preemption for any placement policy: which pending and running tasks get devices from now on.

The rule, in the order of scores: a running task stays. A pending task is placed in the free resources. If it does
not fit, the running tasks behind it are removed, the last first, until it fits; tasks whose devices (or CPUs,
memory) it then uses are preempted. So no task is moved without need, and no task loses a device to one behind it.
A task that would not fit even without all tasks behind it is skipped. A preempted task is placed again at its
turn, like any pending one.

Built-in placement policies do the same in one compiled call (``kernel.rearranging``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.shares import Vacancy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Placer


def rearrange(
    view: PoolView, order: NDArray[np.int32], placer: Placer, *, strict: bool
) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
    """Which tasks start where, and which are preempted for them."""
    plan = _Plan(view, order, placer)
    starts = []
    for i, task in enumerate(order):
        if task in plan.kept:
            plan.settle(int(task))
            continue
        placement = plan.place(i)
        if placement is not None:
            starts.append(placement)
        elif strict:
            break
    displaced = [int(t) for t in order if view.task_node[t] >= 0 and t not in plan.kept]
    return tuple(starts), tuple(displaced)


class _Plan:
    """The free resources now (``now``), and those without all running tasks behind the present one."""

    def __init__(self, view: PoolView, order: NDArray[np.int32], placer: Placer) -> None:
        self._view, self._order, self._placer = view, order, placer
        self._now, self._roomy = Vacancy.of(view), Vacancy.of(view)
        self.kept = {int(t) for t in order if view.task_node[t] >= 0}
        """Tasks that run and are not displaced."""
        for task in self.kept:
            self._move(self._roomy, task, 1)

    def settle(self, task: int) -> None:
        """Keep the running task whose turn has come."""
        self._move(self._roomy, task, -1)

    def place(self, i: int) -> Placement | None:
        """A place for the i-th of the order, taken from tasks behind it if necessary."""
        task, cleared = int(self._order[i]), list[int]()
        found = self._try(self._now, task)
        if found is None and self._try(self._roomy, task) is not None:
            found, cleared = self._clear(i)
        if found is not None:
            self._now.move(task, found.devices, int(found.nodes[0]), -1)
            self._roomy.move(task, found.devices, int(found.nodes[0]), -1)
        self._put_back(cleared)
        return found

    def _try(self, vacancy: Vacancy, task: int) -> Placement | None:
        found = self._placer.place(vacancy.seen(), np.array([task], dtype=np.int32), strict=False)
        return found[0] if found else None

    def _clear(self, i: int) -> tuple[Placement | None, list[int]]:
        """Remove running tasks behind the i-th, the last first, until it fits; its place, and those removed."""
        cleared: list[int] = []
        for task in (int(t) for t in self._order[:i:-1] if int(t) in self.kept):
            self._move(self._now, task, 1)
            cleared.append(task)
            found = self._try(self._now, int(self._order[i]))
            if found is not None:
                return found, cleared
        return None, cleared

    def _put_back(self, cleared: list[int]) -> None:
        """Restore in order; tasks that collide with the placement are displaced."""
        for task in reversed(cleared):
            self._move(self._now, task, -1)
            if self._now.overdrawn(self._held(task), int(self._view.task_node[task])):
                self._move(self._now, task, 1)
                self.kept.discard(task)

    def _held(self, task: int) -> NDArray[np.int32]:
        view = self._view
        return view.held[view.held_from[task] : view.held_from[task + 1]]

    def _move(self, vacancy: Vacancy, task: int, sign: int) -> None:
        vacancy.move(task, self._held(task), int(self._view.task_node[task]), sign)
