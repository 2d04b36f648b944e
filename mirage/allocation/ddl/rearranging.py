"""Decisions with preemption, for any placement policy: who of the pending and the running has devices from now on.

The rule, in the order of scores: a running task stays where it is. A pending one is placed in what is free; where
it does not fit, the running tasks behind it are cleared away, the last first, until it does, and those whose
devices (or CPUs, memory) it got are preempted. So nothing is moved for its own sake, nobody loses a device
to one behind, and a task that could not be placed even if all behind it went is passed over. A task that is
preempted is retried when its turn comes, as any pending one.

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
    """Who starts where, and who is preempted for it."""
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
    """What is free as things stand (``now``), and would be if all that run behind the present task went."""

    def __init__(self, view: PoolView, order: NDArray[np.int32], placer: Placer) -> None:
        self._view, self._order, self._placer = view, order, placer
        self._now, self._roomy = Vacancy.of(view), Vacancy.of(view)
        self.kept = {int(t) for t in order if view.task_node[t] >= 0}
        """Running and not displaced."""
        for task in self.kept:
            self._move(self._roomy, task, 1)

    def settle(self, task: int) -> None:
        """The running task's turn has come: it stays."""
        self._move(self._roomy, task, -1)

    def place(self, i: int) -> Placement | None:
        """A place for the i-th of the order, at the expense of those behind it where need be."""
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
        """Clear those that run behind, the last first, until the i-th fits; its place, and those cleared."""
        cleared: list[int] = []
        for task in (int(t) for t in self._order[:i:-1] if int(t) in self.kept):
            self._move(self._now, task, 1)
            cleared.append(task)
            found = self._try(self._now, int(self._order[i]))
            if found is not None:
                return found, cleared
        return None, cleared

    def _put_back(self, cleared: list[int]) -> None:
        """The first of the order first; those that collide with what was placed are displaced."""
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
