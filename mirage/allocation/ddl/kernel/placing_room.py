"""Whether tasks fit: what a part of a task needs, and for how much of it a node has room."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import SLACK, Room, Site

ONE = np.uint64(1)


@inlined
def part_of(total: int, devices: int, of: int) -> int:
    """What a part with so many of the task's devices needs of CPUs or memory; all if it has none."""
    return total if of == 0 else (total * devices + of - 1) // of


@inlined
def allows(kinds: int, kind: int) -> bool:
    """Whether a mask of kinds has this one."""
    return ((kinds >> np.uint64(kind)) & ONE) == ONE


@inlined
def suits(site: Site, room: Room, task: int, device: int) -> bool:
    """Whether the device is of the right kind and has the share left."""
    need = site.needs[task]
    return allows(need.kinds, site.devices[device].kind) and room.free[device] >= need.share - SLACK


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
def free_on(site: Site, room: Room, node: int) -> float:
    """The shares of its devices that are free, added up."""
    free = 0.0
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        free += room.free[device]
    return free
