"""Decisions with preemption: who of the pending and of those that can be preempted runs now, and where.

The rule, in the order of scores: a running task stays where it is. A pending one is placed in what is free; where
it does not fit, the running tasks behind it are cleared away, the last first, until it does, and those whose
devices (or CPUs, memory) it got are preempted. So nothing is ever moved for its own sake, nobody loses a
device to one behind, and a task that could not be placed even if all behind it went is passed over. A task that is
preempted is retried when its turn comes, as any pending one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel import placing
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import SLACK, Draft, Room, Site
from mirage.allocation.ddl.kernel.placing import Placed


class Holding(NamedTuple):
    """Who runs where."""

    task_node: np.ndarray  # i4 (tasks,): the first node; -1: does not run, or not any more
    held_from: np.ndarray  # i4 (tasks + 1,)
    held: np.ndarray  # i4
    kept: np.ndarray  # u1 (tasks,): 1 while it runs and is not displaced


@compiled
def rearrange(
    site: Site,
    room: Room,
    roomy: Room,
    draft: Draft,
    holding: Holding,
    order: np.ndarray,
    strict: bool,
    code: int,
    placed: Placed,
) -> int:
    """Decide; how many are placed. ``holding.kept`` is 0 for those preempted. Both rooms begin as what is free."""
    clear_all(site, roomy, draft, holding, order)
    placed.devices_from[0] = placed.nodes_from[0] = 0
    count = 0
    for i in range(order.shape[0]):
        task = order[i]
        if holding.kept[task] == 1:
            move_held(site, roomy, holding, task, -1)
            continue
        if draft.failed[site.needs[task].likeness] == 0 and _find(
            site, room, roomy, draft, holding, order, i, code
        ):
            placing.move(site, room, task, draft.devices, 0, draft.size[0], draft.nodes[0], -1)
            _displace(site, room, holding, order, i)
            placing.move(site, roomy, task, draft.devices, 0, draft.size[0], draft.nodes[0], -1)
            count = placing.record(placed, draft, count, task)
        elif strict:
            break
        else:
            draft.failed[site.needs[task].likeness] = 1
    return count


@compiled
def clear_all(site: Site, roomy: Room, draft: Draft, holding: Holding, order: np.ndarray) -> None:
    """All that can be preempted counts as gone in ``roomy``."""
    for likeness in range(draft.failed.shape[0]):
        draft.failed[likeness] = 0
    for i in range(order.shape[0]):
        task = order[i]
        holding.kept[task] = 1 if holding.task_node[task] >= 0 else 0
        if holding.kept[task] == 1:
            move_held(site, roomy, holding, task, 1)


@compiled
def _find(
    site: Site, room: Room, roomy: Room, draft: Draft, holding: Holding, order: np.ndarray, i: int, code: int
) -> bool:
    """Draft a place for the i-th of the order, those behind it cleared from ``room`` as far as it takes."""
    task = order[i]
    if placing.choose(site, room, draft, task, code):
        return True
    if not placing.choose(site, roomy, draft, task, code):
        return False
    for j in range(order.shape[0] - 1, i, -1):
        if holding.kept[order[j]] == 1:
            holding.kept[order[j]] = 2
            move_held(site, room, holding, order[j], 1)
            if placing.choose(site, room, draft, task, code):
                return True
    _displace(site, room, holding, order, i)
    return False


@compiled
def _displace(site: Site, room: Room, holding: Holding, order: np.ndarray, i: int) -> None:
    """Put those cleared back where they do not collide with what was placed; the others are displaced."""
    for j in range(i + 1, order.shape[0]):
        task = order[j]
        if holding.kept[task] == 2:
            move_held(site, room, holding, task, -1)
            holding.kept[task] = 1
            if _collides(site, room, holding, task):
                move_held(site, room, holding, task, 1)
                holding.kept[task] = 0


@compiled
def _collides(site: Site, room: Room, holding: Holding, task: int) -> bool:
    """Whether more is taken than there is, where the task runs."""
    node = holding.task_node[task]
    if room.cpus[node] < 0 or room.memory[node] < 0:
        return True
    for k in range(holding.held_from[task], holding.held_from[task + 1]):
        node = site.devices[holding.held[k]].node
        if room.free[holding.held[k]] < -SLACK or room.cpus[node] < 0 or room.memory[node] < 0:
            return True
    return False


@inlined
def move_held(site: Site, room: Room, holding: Holding, task: int, sign: int) -> None:
    """Give back (1) or take (-1) what a running task has."""
    first, end = holding.held_from[task], holding.held_from[task + 1]
    placing.move(site, room, task, holding.held, first, end, holding.task_node[task], sign)
