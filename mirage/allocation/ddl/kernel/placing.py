"""Where a task goes: the built-in placers, each a rule by which a node is chosen, told apart by a code.

Whether a task fits depends on what it needs and on what is free, never on the rule or on other qualities of the
task: so one that needs as much as one that has failed need not be tried again while nothing is given back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import BEST_FIT, INFINITY, SLACK, Draft, Room, Site

ONE = np.uint64(1)


class Placed(NamedTuple):
    """The placements that a pass over an order has found; the i-th one's rows begin at ``from``[i]."""

    tasks: np.ndarray  # i4
    devices_from: np.ndarray  # i8
    devices: np.ndarray  # i4
    nodes_from: np.ndarray  # i8
    nodes: np.ndarray  # i4


@inlined
def part_of(total: int, devices: int, of: int) -> int:
    """What a part with so many of the task's devices needs of processors or memory; all if it has none."""
    return total if of == 0 else (total * devices + of - 1) // of


@inlined
def suits(site: Site, room: Room, task: int, device: int) -> bool:
    """Whether the device is of the right kind and has the share left."""
    need = site.needs[task]
    allowed = (need.kinds >> np.uint64(site.devices[device].kind)) & ONE
    return allowed == ONE and room.free[device] >= need.share - SLACK


@compiled
def room_on(site: Site, room: Room, task: int, node: int) -> int:
    """How many of the task's devices the node has room for; for a task without devices 0 or, with room, 1."""
    need = site.needs[task]
    if need.devices == 0:
        return 1 if need.cpus <= room.cpus[node] and need.memory <= room.memory[node] else 0
    usable = 0
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        if suits(site, room, task, device):
            usable += 1
    usable = min(usable, need.devices)
    while usable > 0 and (
        part_of(need.cpus, usable, need.devices) > room.cpus[node]
        or part_of(need.memory, usable, need.devices) > room.memory[node]
    ):
        usable -= 1
    return usable


@compiled
def _rating(site: Site, room: Room, task: int, node: int, code: int) -> float:
    """The rule: the node with the smallest number is taken, the first of equals."""
    if code == BEST_FIT:
        if site.needs[task].devices == 0:
            return float(room.cpus[node])
        free = 0.0
        for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
            free += room.free[device]
        return free
    return float(node)


@compiled
def _best_node(site: Site, room: Room, draft: Draft, task: int, least: int, code: int) -> int:
    """The node to take among those not yet taken with room for ``least`` devices; -1 if there is none."""
    best, lowest = -1, INFINITY
    for node in range(site.nodes.shape[0]):
        if draft.taken[node] == 0 and room_on(site, room, task, node) >= least:
            rating = _rating(site, room, task, node, code)
            if rating < lowest:
                best, lowest = node, rating
    return best


@compiled
def _roomiest(site: Site, room: Room, draft: Draft, task: int) -> int:
    """The node not yet taken with room for most devices, the first of equals; -1 if none has any."""
    best, most = -1, 0
    for node in range(site.nodes.shape[0]):
        if draft.taken[node] == 0:
            here = room_on(site, room, task, node)
            if here > most:
                best, most = node, here
    return best


@compiled
def choose(site: Site, room: Room, draft: Draft, task: int, code: int) -> bool:
    """Find the task a place, written into ``draft``; False if there is none. Nothing is taken yet.

    On one node if there is one with room for all, else on as few as will do: the roomiest first, then, for what
    is left, a node by the rule.
    """
    need = site.needs[task]
    draft.size[0] = draft.size[1] = 0
    left, found = max(need.devices, 1), False
    for _ in range(need.max_nodes):
        last = _best_node(site, room, draft, task, left, code)
        if last >= 0:
            draft.taken[last] = left
            found = True
            break
        node = _roomiest(site, room, draft, task)
        if node < 0:
            break
        draft.taken[node] = room_on(site, room, task, node)
        left -= draft.taken[node]
    for node in range(site.nodes.shape[0]):
        if draft.taken[node] > 0:
            if found:
                _write(site, room, draft, task, node)
            draft.taken[node] = 0
    return found


@compiled
def _write(site: Site, room: Room, draft: Draft, task: int, node: int) -> None:
    """Add the node, and its devices for as many as are taken there, to the placement."""
    draft.nodes[draft.size[1]] = node
    draft.size[1] += 1
    if site.needs[task].devices == 0:
        return
    taken, device = 0, site.nodes[node].first_device
    while taken < draft.taken[node]:
        if suits(site, room, task, device):
            draft.devices[draft.size[0]] = device
            draft.size[0] += 1
            taken += 1
        device += 1


@compiled
def move(
    site: Site, room: Room, task: int, devices: np.ndarray, first: int, end: int, node: int, sign: int
) -> None:
    """Give back (1) or take (-1) what the task has: ``devices[first:end]``, or processors of ``node`` alone."""
    need = site.needs[task]
    if first == end:
        room.cpus[node] += sign * need.cpus
        room.memory[node] += sign * need.memory
        return
    i = first
    while i < end:
        here, count = site.devices[devices[i]].node, 0
        while i < end and site.devices[devices[i]].node == here:
            room.free[devices[i]] += sign * need.share
            count += 1
            i += 1
        room.cpus[here] += sign * part_of(need.cpus, count, need.devices)
        room.memory[here] += sign * part_of(need.memory, count, need.devices)


@compiled
def record(placed: Placed, draft: Draft, count: int, task: int) -> int:
    """Add the drafted placement to those found so far, ``count`` of them; how many there are now."""
    placed.tasks[count] = task
    d, n = placed.devices_from[count], placed.nodes_from[count]
    for i in range(draft.size[0]):
        placed.devices[d + i] = draft.devices[i]
    for i in range(draft.size[1]):
        placed.nodes[n + i] = draft.nodes[i]
    placed.devices_from[count + 1] = d + draft.size[0]
    placed.nodes_from[count + 1] = n + draft.size[1]
    return count + 1


@compiled
def place_in_order(
    site: Site, room: Room, draft: Draft, order: np.ndarray, strict: bool, code: int, placed: Placed
) -> int:
    """Place as many of ``order`` as fit, each taking its room; how many. ``strict``: up to the first failure."""
    for likeness in range(draft.failed.shape[0]):
        draft.failed[likeness] = 0
    placed.devices_from[0] = placed.nodes_from[0] = 0
    count = 0
    for i in range(order.shape[0]):
        task = order[i]
        likeness = site.needs[task].likeness
        if draft.failed[likeness] == 0 and choose(site, room, draft, task, code):
            move(site, room, task, draft.devices, 0, draft.size[0], draft.nodes[0], -1)
            count = record(placed, draft, count, task)
        elif strict:
            break
        else:
            draft.failed[likeness] = 1
    return count
