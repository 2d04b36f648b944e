"""Where a task goes: the built-in placement policies, each a rule by which a node is chosen, told apart by a code.

Whether a task fits depends on what it needs and on what is free, never on the rule or on other qualities of the
task: so one that needs as much as one that has failed need not be retried while nothing is given back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import CONSOLIDATE, INFINITY, Draft, Room, Site
from mirage.allocation.ddl.kernel.placing_fragments import ONE, part_of, room_on
from mirage.allocation.ddl.kernel.placing_rules import mark, rating

__all__ = ["ONE", "Placed", "choose", "move", "part_of", "place_in_order", "record"]


class Placed(NamedTuple):
    """The placements that a pass over an order has found; the i-th one's rows begin at ``from``[i]."""

    tasks: np.ndarray  # i4
    devices_from: np.ndarray  # i8
    devices: np.ndarray  # i4
    nodes_from: np.ndarray  # i8
    nodes: np.ndarray  # i4


@compiled
def _best_node(site: Site, room: Room, draft: Draft, task: int, least: int, code: int, switch: int) -> int:
    """The node to take among those not yet taken with room for ``least`` devices; -1 if there is none."""
    best, lowest = -1, INFINITY
    for node in range(site.nodes.shape[0]):
        if _open(site, draft, node, switch) and room_on(site, room, task, node) >= least:
            here = rating(site, room, draft, task, node, least, code)
            if here < lowest:
                best, lowest = node, here
    return best


@compiled
def _roomiest(site: Site, room: Room, draft: Draft, task: int, switch: int) -> int:
    """The node not yet taken with room for most devices, the first of equals; -1 if none has any."""
    best, most = -1, 0
    for node in range(site.nodes.shape[0]):
        if _open(site, draft, node, switch):
            here = room_on(site, room, task, node)
            if here > most:
                best, most = node, here
    return best


@inlined
def _open(site: Site, draft: Draft, node: int, switch: int) -> bool:
    """Whether the node is not yet taken and below the switch; -1: below any."""
    return draft.taken[node] == 0 and (switch < 0 or site.nodes[node].switch == switch)


@compiled
def _take_nodes(site: Site, room: Room, draft: Draft, task: int, code: int, switch: int) -> int:
    """Write into ``draft.taken`` how many devices the task takes on which nodes; on how many nodes, 0: nowhere."""
    need = site.needs[task]
    left = max(need.devices, 1)
    for nodes in range(need.max_nodes):
        last = _best_node(site, room, draft, task, left, code, switch)
        if last >= 0:
            draft.taken[last] = left
            return nodes + 1
        node = _roomiest(site, room, draft, task, switch)
        if node < 0:
            break
        draft.taken[node] = room_on(site, room, task, node)
        left -= draft.taken[node]
    _release_nodes(draft)
    return 0


@compiled
def _release_nodes(draft: Draft) -> None:
    for node in range(draft.taken.shape[0]):
        draft.taken[node] = 0


@compiled
def _take_below_one_switch(site: Site, room: Room, draft: Draft, task: int, nodes: int) -> None:
    """Take as many nodes below one switch instead, the first that has them, if there is one."""
    _release_nodes(draft)
    for node in range(site.nodes.shape[0]):
        switch = site.nodes[node].switch
        if _take_nodes(site, room, draft, task, CONSOLIDATE, switch) == nodes:
            return
        _release_nodes(draft)
    _take_nodes(site, room, draft, task, CONSOLIDATE, -1)


@compiled
def choose(site: Site, room: Room, draft: Draft, task: int, code: int) -> bool:
    """Find the task a place, written into ``draft``; False if there is none. Nothing is taken yet.

    On one node if there is one with room for all, else on as few as will do: the roomiest first, then, for what
    is left, a node by the rule.
    """
    draft.size[0] = draft.size[1] = 0
    nodes = _take_nodes(site, room, draft, task, code, -1)
    if nodes > 1 and code == CONSOLIDATE:
        _take_below_one_switch(site, room, draft, task, nodes)
    if nodes > 0:
        for node in range(site.nodes.shape[0]):
            if draft.taken[node] > 0:
                _write(site, room, draft, task, node, code)
                draft.taken[node] = 0
    return nodes > 0


@compiled
def _write(site: Site, room: Room, draft: Draft, task: int, node: int, code: int) -> None:
    """Add the node, and its devices for as many as are taken there, to the placement."""
    draft.nodes[draft.size[1]] = node
    draft.size[1] += 1
    if site.needs[task].devices == 0:
        return
    mark(site, room, draft, task, node, draft.taken[node], code)
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        if draft.marked[device] == 1:
            draft.devices[draft.size[0]] = device
            draft.size[0] += 1
            draft.marked[device] = 0


@compiled
def move(
    site: Site, room: Room, task: int, devices: np.ndarray, first: int, end: int, node: int, sign: int
) -> None:
    """Give back (1) or take (-1) what the task has: ``devices[first:end]``, or CPUs of ``node`` alone."""
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
def recall(placed: Placed, draft: Draft, i: int) -> None:
    """The i-th of what was placed, as the draft it was."""
    d, n = placed.devices_from[i], placed.nodes_from[i]
    draft.size[0], draft.size[1] = placed.devices_from[i + 1] - d, placed.nodes_from[i + 1] - n
    for k in range(draft.size[0]):
        draft.devices[k] = placed.devices[d + k]
    for k in range(draft.size[1]):
        draft.nodes[k] = placed.nodes[n + k]


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
