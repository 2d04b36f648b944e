"""What is asked of the pool from outside, checked before it is done."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.kernel import lifecycle, placing
from mirage.allocation.ddl.kernel.compile import compiled
from mirage.allocation.ddl.kernel.layout import ENDED, PENDING, SLACK, Draft, PoolConstants, PoolState, Room, Site

__all__ = ["COMPLAINTS", "ENDED", "nodes_alone", "start"]

COMPLAINTS = (
    "",
    "is not pending",
    "its placement has another number of devices than it needs, or names one twice or out of order",
    "its placement names a device or a node that the pool does not have",
    "a device of its placement is not of a kind that it may use",
    "a device of its placement is not free",
    "its placement is spread over more nodes than it may be",
    "a node of its placement lacks CPUs or memory",
)
GOOD, NOT_PENDING, WRONG_COUNT, UNKNOWN, WRONG_KIND, NOT_FREE, TOO_SPREAD, NO_ROOM = range(8)


@compiled
def nodes_alone(site: Site, room: Room, draft: Draft, counts: np.ndarray) -> np.ndarray:
    """On how few nodes each task fits into what is free, were it alone; 0 where it does not."""
    for task in range(counts.shape[0]):
        counts[task] = draft.size[1] if placing.choose(site, room, draft, task, 0) else 0
    return counts


@compiled
def start(
    fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, task: int, devices: np.ndarray, node: int
) -> int:
    """Start a task on these devices, or without any on ``node``; else what is wrong, a row of ``COMPLAINTS``."""
    if world.states[task].status != PENDING:
        return NOT_PENDING
    complaint = _check_devices(site, world, task, devices)
    if complaint != GOOD:
        return complaint
    draft.size[0], draft.size[1] = devices.shape[0], 0
    for i in range(devices.shape[0]):
        draft.devices[i] = devices[i]
        here = site.devices[devices[i]].node
        if draft.size[1] == 0 or draft.nodes[draft.size[1] - 1] != here:
            draft.nodes[draft.size[1]] = here
            draft.size[1] += 1
    if devices.shape[0] == 0:
        if not 0 <= node < site.nodes.shape[0]:
            return UNKNOWN
        draft.nodes[0], draft.size[1] = node, 1
    complaint = _check_nodes(site, world, draft, task)
    if complaint == GOOD:
        lifecycle.start(fixed, site, world, draft, task)
    return complaint


@compiled
def _check_devices(site: Site, world: PoolState, task: int, devices: np.ndarray) -> int:
    need = site.needs[task]
    if devices.shape[0] != need.devices:
        return WRONG_COUNT
    for i in range(devices.shape[0]):
        device = devices[i]
        if not 0 <= device < site.devices.shape[0]:
            return UNKNOWN
        if i > 0 and device <= devices[i - 1]:
            return WRONG_COUNT
        if (need.kinds >> np.uint64(site.devices[device].kind)) & placing.ONE != placing.ONE:
            return WRONG_KIND
        if world.free[device] < need.share - SLACK:
            return NOT_FREE
    return GOOD


@compiled
def _check_nodes(site: Site, world: PoolState, draft: Draft, task: int) -> int:
    need, i = site.needs[task], 0
    if draft.size[1] > need.max_nodes:
        return TOO_SPREAD
    for k in range(draft.size[1]):
        node, count = draft.nodes[k], 0
        while i < draft.size[0] and site.devices[draft.devices[i]].node == node:
            count += 1
            i += 1
        if placing.part_of(need.cpus, count, need.devices) > world.cpus[node]:
            return NO_ROOM
        if placing.part_of(need.memory, count, need.devices) > world.memory[node]:
            return NO_ROOM
    return GOOD
