"""Room and fragments: whether tasks fit, and what of a node's free devices is lost to the tasks that are usual
here.

FRAGMENTS is the gradient descent of Weng et al., 'Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent' (USENIX ATC'23): a task goes where the expected fragments grow least, by
steps of a hundredth of a sigmoid as in their scheduler. FORESIGHT adds what these cannot see, as they look one
task ahead:

- the worth of what is left of a shared device, by the prices at which all shares of the mix would be cut out of as
  few devices as possible (``ddl.placers``): a small task does not spoil the place of a larger one;
- the devices stranded because the node's CPUs or memory, used at the mean rate of the mix, go out first.
"""

from __future__ import annotations

import math

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import FORESIGHT, INFINITY, SLACK, Draft, Mix, Room, Site

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


STEPS = 100
"""Of the sigmoid, in which growths count as equal."""
STEP = 0.04
"""Devices that a step is worth near 0, where the sigmoid rises by a quarter."""
WASTE = 4.0
"""How much worse it is to waste what is left of a device than to leave a fragment that may still be filled."""
GRID = 1000
"""Parts of a device by which its worth is known."""


@compiled
def fragments(site: Site, mix: Mix, free: np.ndarray, cpus: int, node: int) -> float:
    """Devices of a node that are expected to be lost to the next task of the mix."""
    first, end = site.nodes[node].first_device, site.nodes[node].end_device
    total = 0.0
    for device in range(first, end):
        total += free[device]
    expected = 0.0
    for k in range(mix.types.shape[0]):
        usual = mix.types[k]
        lost, found = 0.0, 0
        if usual.devices > 0 and usual.cpus <= cpus:
            for device in range(first, end):
                if allows(usual.kinds, site.devices[device].kind) and free[device] >= usual.share - SLACK:
                    found += 1
                else:
                    lost += free[device]
        if usual.devices == 0 or found < usual.devices:
            lost = total
        expected += usual.weight * lost
    return expected


@compiled
def _stranded(site: Site, mix: Mix, free: np.ndarray, cpus: int, memory: int, node: int) -> float:
    """Devices of a node that are left over when its CPUs or memory are used up at the mix's mean rate."""
    left = 0.0
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        left += free[device]
    served = left
    if mix.rates[0].cpus > 0.0:
        served = min(served, cpus / mix.rates[0].cpus)
    if mix.rates[0].memory > 0.0:
        served = min(served, memory / mix.rates[0].memory)
    return left - served


@inlined
def _worth(mix: Mix, share: float) -> float:
    return mix.worth[int(share * GRID + 1e-6)]


@compiled
def _growth(
    site: Site, room: Room, draft: Draft, task: int, node: int, cpus: int, memory: int, device: int, code: int
) -> float:
    """What it costs to go from what is free to what ``draft.scratch`` has; ``device``: the shared one, or -1."""
    mix = draft.mix
    grown = fragments(site, mix, draft.scratch, cpus, node) - fragments(
        site, mix, room.free, room.cpus[node], node
    )
    steps = math.floor(STEPS / (1.0 + math.exp(grown)) + 1e-9)
    if code != FORESIGHT:
        return float(-steps)
    cost = -STEP * steps
    cost += _stranded(site, mix, draft.scratch, cpus, memory, node)
    cost -= _stranded(site, mix, room.free, room.cpus[node], room.memory[node], node)
    if device >= 0:
        wasted = _worth(mix, room.free[device]) - _worth(mix, draft.scratch[device])
        cost += WASTE * (wasted - mix.prices[site.needs[task].likeness])
    return cost


@compiled
def growth_on(site: Site, room: Room, draft: Draft, task: int, node: int, count: int, code: int) -> float:
    """The cost of the cheapest way to put ``count`` of the task's devices on the node."""
    need = site.needs[task]
    cpus = room.cpus[node] - part_of(need.cpus, count, need.devices)
    memory = room.memory[node] - part_of(need.memory, count, need.devices)
    first, end = site.nodes[node].first_device, site.nodes[node].end_device
    for device in range(first, end):
        draft.scratch[device] = room.free[device]
    if need.share >= 1.0 or need.devices != 1:
        taken = 0
        for device in range(first, end):
            if taken < count and need.devices > 0 and suits(site, room, task, device):
                draft.scratch[device] -= need.share
                taken += 1
        return _growth(site, room, draft, task, node, cpus, memory, -1, code)
    cheapest = INFINITY
    for device in range(first, end):
        if suits(site, room, task, device) and not _like_one_before(site, room, first, device):
            cheapest = min(cheapest, growth_of(site, room, draft, task, node, device, code))
    return cheapest


@compiled
def growth_of(site: Site, room: Room, draft: Draft, task: int, node: int, device: int, code: int) -> float:
    """The cost of giving a task its share of this device. ``draft.scratch`` has what is free on the node."""
    need = site.needs[task]
    cpus, memory = room.cpus[node] - need.cpus, room.memory[node] - need.memory
    draft.scratch[device] = room.free[device] - need.share
    cost = _growth(site, room, draft, task, node, cpus, memory, device, code)
    draft.scratch[device] = room.free[device]
    return cost


@compiled
def _like_one_before(site: Site, room: Room, first: int, device: int) -> bool:
    """Whether a device before it on the node is as free and of the same kind."""
    for other in range(first, device):
        same = site.devices[other].kind == site.devices[device].kind
        if same and abs(room.free[other] - room.free[device]) < SLACK:
            return True
    return False


@compiled
def remembered(site: Site, room: Room, draft: Draft, task: int, node: int, count: int, code: int) -> float:
    """``growth_on``, computed once for all nodes that stand alike."""
    key = _fingerprint(site, room, task, node, count)
    slot = int(key % np.uint64(draft.memo.keys.shape[0]))
    if draft.memo.keys[slot] != key:
        draft.memo.ratings[slot] = growth_on(site, room, draft, task, node, count, code)
        draft.memo.keys[slot] = key
    return draft.memo.ratings[slot]


@compiled
def _fingerprint(site: Site, room: Room, task: int, node: int, count: int) -> int:
    """Of all that a rating depends on: 64 bits, so that two that differ practically never share one."""
    key = _mixed(np.uint64(site.needs[task].likeness + 1), np.uint64(count))
    key = _mixed(key, np.uint64(room.cpus[node]))
    key = _mixed(key, np.uint64(room.memory[node]))
    for device in range(site.nodes[node].first_device, site.nodes[node].end_device):
        key = _mixed(key, np.uint64(site.devices[device].kind))
        key = _mixed(key, np.uint64(max(room.free[device], 0.0) * 1e9 + 0.5))
    return key | np.uint64(1)


@inlined
def _mixed(key: int, more: int) -> int:
    """A step of splitmix64."""
    key = (key ^ more) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@compiled
def scatter(task: int, node: int) -> float:
    """A number in [0, 1) that looks drawn at random, the same for the same pair."""
    key = _mixed(_mixed(np.uint64(task + 1), np.uint64(0x9E3779B97F4A7C15)), np.uint64(node))
    return float(key >> np.uint64(11)) / 9007199254740992.0
