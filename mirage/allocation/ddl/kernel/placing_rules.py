"""The rules: a number for each node with room, the smallest of which is taken; and which devices on it."""

from __future__ import annotations

from mirage.allocation.ddl.kernel.compile import compiled
from mirage.allocation.ddl.kernel.layout import (
    BALANCE,
    BEST_FIT_ALL,
    CONSOLIDATE,
    DOT_PRODUCT,
    FIRST_FIT,
    FORESIGHT,
    FRAGMENTS,
    PACK,
    RANDOM,
    SLACK,
    Draft,
    Room,
    Site,
)
from mirage.allocation.ddl.kernel.placing_fragments import free_on, growth_of, remembered, scatter, suits


@compiled
def rating(site: Site, room: Room, draft: Draft, task: int, node: int, count: int, code: int) -> float:
    """The rule, for ``count`` of the task's devices: the node with the smallest number is taken."""
    if code == FIRST_FIT:
        return float(node)
    if code in (FRAGMENTS, FORESIGHT):
        return remembered(site, room, draft, task, node, count, code)
    if code == RANDOM:
        return scatter(task, node)
    if code == BALANCE:
        return -_vacant(site, room, task, node)
    if code in (BEST_FIT_ALL, DOT_PRODUCT):
        return _over_all(site, room, task, node, code)
    if code == PACK:
        return _fresh(site, room, task, node, count)
    if code == CONSOLIDATE:
        return 1e6 * _islands(site, room, draft, task, node, count) + free_on(site, room, node)
    return free_on(site, room, node)


@compiled
def _vacant(site: Site, room: Room, task: int, node: int) -> float:
    """The part of the node's devices that is free; of its CPUs, for a task that needs no device."""
    if site.needs[task].devices == 0:
        return room.cpus[node] / max(site.nodes[node].cpus, 1)
    return free_on(site, room, node) / max(site.nodes[node].end_device - site.nodes[node].first_device, 1)


@compiled
def _over_all(site: Site, room: Room, task: int, node: int, code: int) -> float:
    """CPUs and devices together, each as a part of the largest node's."""
    need, largest = site.needs[task], site.largest[0]
    cpus, devices = room.cpus[node] / max(largest.cpus, 1), free_on(site, room, node) / max(largest.devices, 1)
    if code == BEST_FIT_ALL:
        return cpus + devices
    wanted = need.devices * need.share / max(largest.devices, 1)
    return cpus * need.cpus / max(largest.cpus, 1) + devices * wanted


@compiled
def _fresh(site: Site, room: Room, task: int, node: int, count: int) -> float:
    """Shared devices before whole ones, the fullest first; then nodes in use before empty ones."""
    first, end = site.nodes[node].first_device, site.nodes[node].end_device
    whole, fullest, shareable = 0, 1.0, 0
    for device in range(first, end):
        if room.free[device] > 1.0 - SLACK:
            whole += 1
        elif suits(site, room, task, device):
            shareable += 1
            fullest = min(fullest, room.free[device])
    if whole == end - first:
        return 1e6 + whole
    return fullest if shareable >= count else 1e3 + count


@compiled
def _islands(site: Site, room: Room, draft: Draft, task: int, node: int, count: int) -> int:
    """Over how many islands ``count`` devices of the node are spread where ``mark`` takes them; unmarks them."""
    islands = mark_by_island(site, room, draft, task, node, count)
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        draft.marked[device] = 0
    return islands


@compiled
def mark(site: Site, room: Room, draft: Draft, task: int, node: int, count: int, code: int) -> None:
    """Set ``draft.marked`` to 1 for the ``count`` devices of the node that the task is to have."""
    need = site.needs[task]
    if need.devices == 1 and need.share < 1.0:
        draft.marked[_shared_one(site, room, draft, task, node, code)] = 1
    elif code == CONSOLIDATE:
        mark_by_island(site, room, draft, task, node, count)
    else:
        taken, device = 0, site.nodes[node].first_device
        while taken < count:
            if suits(site, room, task, device):
                draft.marked[device] = 1
                taken += 1
            device += 1


@compiled
def _shared_one(site: Site, room: Room, draft: Draft, task: int, node: int, code: int) -> int:
    """The device of the node that the task shares: the fullest unless the rule has another wish."""
    first, end = site.nodes[node].first_device, site.nodes[node].end_device
    for device in range(first, end):
        draft.scratch[device] = room.free[device]
    best, lowest = -1, 0.0
    for device in range(first, end):
        if suits(site, room, task, device):
            here = room.free[device]
            if code == FIRST_FIT:
                here = 0.0
            elif code == BALANCE:
                here = -here
            elif code == RANDOM:
                here = scatter(task, -1 - device)
            elif code in (FRAGMENTS, FORESIGHT):
                here = growth_of(site, room, draft, task, node, device, code)
            if best < 0 or here < lowest - SLACK:
                best, lowest = device, here
    return best


@compiled
def mark_by_island(site: Site, room: Room, draft: Draft, task: int, node: int, count: int) -> int:
    """Mark devices by island, the smallest that will do for the rest, else the largest; how many islands."""
    first, end = site.nodes[node].first_device, site.nodes[node].end_device
    islands = 0
    while count > 0:
        best, size = -1, 0
        for device in range(first, end):
            here = _suitable_beside(site, room, draft, task, first, end, site.devices[device].island)
            enough, had = here >= count, size >= count
            if here > 0 and ((enough and (not had or here < size)) or (not had and here > size)):
                best, size = site.devices[device].island, here
        if best < 0:
            return islands
        for device in range(first, end):
            beside = site.devices[device].island == best and draft.marked[device] == 0
            if count > 0 and beside and suits(site, room, task, device):
                draft.marked[device] = 1
                count -= 1
        islands += 1
    return islands


@compiled
def _suitable_beside(site: Site, room: Room, draft: Draft, task: int, first: int, end: int, island: int) -> int:
    """How many devices of the island are not marked and would do."""
    found = 0
    for device in range(first, end):
        beside = site.devices[device].island == island and draft.marked[device] == 0
        if beside and suits(site, room, task, device):
            found += 1
    return found
