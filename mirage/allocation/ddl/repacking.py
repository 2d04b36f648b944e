"""Decisions with preemption and moves for any placement policy: tasks run that fit when all are repacked.

All candidates are placed in the order of scores, each into the resources left by those before it. The number that
fits determines which tasks run now. Running tasks among them stay where they are if the others then find a place.
Otherwise all go to the places where they were packed, and running tasks whose place changes are moved: stopped,
and resumed there.

Built-in placement policies do the same in one compiled call (``kernel.repacking``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.shares import Vacancy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Placer


def repack(
    view: PoolView, order: NDArray[np.int32], placer: Placer, *, strict: bool
) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
    """Which tasks start where, and which are stopped for them or to be moved."""
    running = [int(task) for task in order if view.task_node[task] >= 0]
    packed = _pack(_without(view, running), order, placer, strict=strict)
    chosen = {placement.task for placement in packed}
    going = tuple(task for task in running if task not in chosen)
    coming = np.array([t for t in order if t in chosen and view.task_node[t] < 0], dtype=np.int32)
    beside = placer.place(_without(view, going).seen(), coming, strict=True) if len(coming) else ()
    if len(beside) == len(coming):
        return beside, going
    moved = {p.task for p in packed if view.task_node[p.task] >= 0 and not _is_there(view, p)}
    starts = tuple(p for p in packed if view.task_node[p.task] < 0 or p.task in moved)
    return starts, tuple(task for task in running if task not in chosen or task in moved)


def _without(view: PoolView, running: list[int] | tuple[int, ...]) -> Vacancy:
    """Free resources without these tasks."""
    vacancy = Vacancy.of(view)
    for task in running:
        vacancy.move(task, _held(view, task), int(view.task_node[task]), 1)
    return vacancy


def _pack(vacancy: Vacancy, order: NDArray[np.int32], placer: Placer, *, strict: bool) -> tuple[Placement, ...]:
    """Place the tasks that fit; ``strict``: after a pending task has failed, only running ones."""
    if not strict:
        return placer.place(vacancy.seen(), order, strict=False)
    packed: list[Placement] = []
    blocked, task_node = False, vacancy.view.task_node
    for i, task in enumerate(order):
        if blocked and task_node[task] < 0:
            continue
        found = placer.place(vacancy.seen(), order[i : i + 1], strict=True)
        for placement in found:
            vacancy.move(int(task), placement.devices, int(placement.nodes[0]), -1)
        packed += found
        blocked = blocked or (not found and bool(task_node[task] < 0))
    return tuple(packed)


def _is_there(view: PoolView, placement: Placement) -> bool:
    if not len(placement.devices):
        return bool(view.task_node[placement.task] == placement.nodes[0])
    return np.array_equal(_held(view, placement.task), placement.devices)


def _held(view: PoolView, task: int) -> NDArray[np.int32]:
    return view.held[view.held_from[task] : view.held_from[task + 1]]
