"""Decisions with preemption: who of the pending and of those that can be preempted runs now, and where.

The rule, in the order of scores: a running task stays where it is. A pending one is placed in what is free;
where it does not fit, the running tasks behind it are cleared away, the last first, until it does, and those
whose devices (or CPUs, memory) it got are preempted. So nothing is ever moved for its own sake, nobody loses a
device to one behind, and a task that could not be placed even if all behind it went is passed over. A task that
is preempted is retried when its turn comes, as any pending one.

With moves, who runs is what fits when all that can be stopped is packed again. In the order of scores all
candidates are placed into what is left without them: so many, and those, run now. The running of them stay
where they are, if the others then find a place; else all go where they were packed, and those whose place is
another are moved: stopped, and resumed there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel import placing
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import SLACK, Draft, Room, Site
from mirage.allocation.ddl.kernel.placing import Placed


class HeldDevices(NamedTuple):
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
    holding: HeldDevices,
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
def clear_all(site: Site, roomy: Room, draft: Draft, holding: HeldDevices, order: np.ndarray) -> None:
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
    site: Site, room: Room, roomy: Room, draft: Draft, holding: HeldDevices, order: np.ndarray, i: int, code: int
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
def _displace(site: Site, room: Room, holding: HeldDevices, order: np.ndarray, i: int) -> None:
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
def _collides(site: Site, room: Room, holding: HeldDevices, task: int) -> bool:
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
def move_held(site: Site, room: Room, holding: HeldDevices, task: int, sign: int) -> None:
    """Give back (1) or take (-1) what a running task has."""
    first, end = holding.held_from[task], holding.held_from[task + 1]
    placing.move(site, room, task, holding.held, first, end, holding.task_node[task], sign)


GOES, STAYS, COMES = range(3)


@compiled
def repack(
    site: Site,
    room: Room,
    roomy: Room,
    draft: Draft,
    holding: HeldDevices,
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
    holding: HeldDevices,
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
    site: Site, room: Room, draft: Draft, holding: HeldDevices, order: np.ndarray, code: int, placed: Placed
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
def _take_over(draft: Draft, holding: HeldDevices, packed: Placed, packings: int, placed: Placed) -> int:
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
def _is_there(draft: Draft, holding: HeldDevices, task: int) -> bool:
    """Whether a running task has the drafted place already."""
    first = holding.held_from[task]
    if draft.size[0] == 0:
        return holding.task_node[task] == draft.nodes[0]
    for k in range(draft.size[0]):
        if holding.held[first + k] != draft.devices[k]:
            return False
    return True
