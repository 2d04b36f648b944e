"""Decisions with preemption and moves: who runs is what fits when all that can be stopped is packed again.

In the order of scores all candidates are placed into what is left without them: so many, and those, run now. The
running of them stay where they are, if the others then find a place; else all go where they were packed, and those
whose place is another are moved: stopped, and resumed there.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.kernel import placing
from mirage.allocation.ddl.kernel.compile import compiled
from mirage.allocation.ddl.kernel.layout import Draft, Room, Site
from mirage.allocation.ddl.kernel.placing import Placed
from mirage.allocation.ddl.kernel.rearranging import Holding, clear_all, move_held

GOES, STAYS, COMES = range(3)


@compiled
def repack(
    site: Site,
    room: Room,
    roomy: Room,
    draft: Draft,
    holding: Holding,
    order: np.ndarray,
    strict: bool,
    code: int,
    placed: Placed,
    packed: Placed,
) -> int:
    """Decide; how many are placed. ``holding.kept`` is 0 for those stopped. Both rooms begin as what is free."""
    clear_all(site, roomy, draft, holding, order)
    count = _pack(site, roomy, draft, holding, order, strict, code, packed)
    for i in range(order.shape[0]):
        holding.kept[order[i]] = GOES
    for i in range(count):
        holding.kept[packed.tasks[i]] = STAYS if holding.task_node[packed.tasks[i]] >= 0 else COMES
    for i in range(order.shape[0]):
        if holding.kept[order[i]] == GOES and holding.task_node[order[i]] >= 0:
            move_held(site, room, holding, order[i], 1)
    beside = _place_beside(site, room, draft, holding, order, code, placed)
    return beside if beside >= 0 else _take_over(draft, holding, packed, count, placed)


@compiled
def _pack(
    site: Site,
    room: Room,
    draft: Draft,
    holding: Holding,
    order: np.ndarray,
    strict: bool,
    code: int,
    packed: Placed,
) -> int:
    """Place what fits, by the order; ``strict``: once a task that waits has failed, only those that run."""
    packed.devices_from[0] = packed.nodes_from[0] = 0
    count, blocked = 0, False
    for i in range(order.shape[0]):
        task = order[i]
        if blocked and holding.task_node[task] < 0:
            continue
        likeness = site.needs[task].likeness
        if draft.failed[likeness] == 0 and placing.choose(site, room, draft, task, code):
            placing.move(site, room, task, draft.devices, 0, draft.size[0], draft.nodes[0], -1)
            count = placing.record(packed, draft, count, task)
        else:
            draft.failed[likeness] = 1
            blocked = blocked or (strict and holding.task_node[task] < 0)
    return count


@compiled
def _place_beside(
    site: Site, room: Room, draft: Draft, holding: Holding, order: np.ndarray, code: int, placed: Placed
) -> int:
    """Place those that come next to those that stay; how many, or -1 where one of them finds no place."""
    placed.devices_from[0] = placed.nodes_from[0] = 0
    count = 0
    for i in range(order.shape[0]):
        task = order[i]
        if holding.kept[task] == COMES:
            if not placing.choose(site, room, draft, task, code):
                return -1
            placing.move(site, room, task, draft.devices, 0, draft.size[0], draft.nodes[0], -1)
            count = placing.record(placed, draft, count, task)
    return count


@compiled
def _take_over(draft: Draft, holding: Holding, packed: Placed, packings: int, placed: Placed) -> int:
    """Everything where it was packed: those that run elsewhere are stopped and placed again."""
    placed.devices_from[0] = placed.nodes_from[0] = 0
    count = 0
    for i in range(packings):
        task = packed.tasks[i]
        placing.recall(packed, draft, i)
        if holding.kept[task] == STAYS and _is_there(draft, holding, task):
            continue
        holding.kept[task] = GOES
        count = placing.record(placed, draft, count, task)
    return count


@compiled
def _is_there(draft: Draft, holding: Holding, task: int) -> bool:
    """Whether a running task has the drafted place already."""
    first = holding.held_from[task]
    if draft.size[0] == 0:
        return holding.task_node[task] == draft.nodes[0]
    for k in range(draft.size[0]):
        if holding.held[first + k] != draft.devices[k]:
            return False
    return True
