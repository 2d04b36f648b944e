"""The main scheduling loop (man slurm.conf, SchedulerParameters: default_queue_depth, sched_interval).

Jobs are tried in order of priority. The first job of a partition that does not fit blocks the partition, and
its nodes for partitions of lower priority; jobs held by limits block nothing. A job that names all its nodes
blocks just these.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, eligibility, lifecycle, limits, nodes, queue
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    DOWN,
    MUST_ROW,
    NEVER,
    NODE_NOT_AVAIL,
    NONE,
    RESOURCES,
    UP_ROW,
    Fixed,
    Record,
    Scratch,
    World,
)


@compiled
def run(fixed: Fixed, world: World, scratch: Scratch, record: Record, depth: int) -> bool:
    """Start what can start among the first ``depth`` eligible jobs; True if the depth cut the queue."""
    sim, pending = world.sim[0], world.pending
    eligibility.notice(fixed, world)
    if sim.idle == 0 or sim.pending == 0:
        return False
    queue.refresh(fixed, world, scratch)
    blocked, closed = scratch.bits[0], scratch.counts
    blocked[:] = bitsets.ZERO
    partitions_left, tried, kept = fixed.config[0].partitions, 0, 0
    closed[: fixed.config[0].partitions] = 0
    n, i, cut = sim.pending, 0, False
    while i < n:
        if partitions_left == 0 or sim.idle == 0:
            break
        slot = pending[i]
        job = world.jobs[slot]
        if closed[job.partition] == 1 or job.eligible == NEVER:
            pending[kept] = slot
            kept, i = kept + 1, i + 1
            continue
        if tried >= depth:
            cut = True
            break
        tried += 1
        i += 1
        if _try_start(fixed, world, scratch, record, slot):
            continue
        pending[kept] = slot
        kept += 1
        if job.listed == job.nodes:
            _keep_listed(world, slot, blocked)
        elif job.reason == RESOURCES and job.reservation < 0:
            closed[job.partition] = 1
            partitions_left -= 1
            mask = fixed.masks[fixed.partitions[job.partition].mask]
            for k in range(blocked.shape[0]):
                blocked[k] |= mask[k]
    for k in range(i, n):
        pending[kept] = pending[k]
        kept += 1
    sim.pending = kept
    return cut


@inlined
def _keep_listed(world: World, slot: int, blocked: np.ndarray) -> None:
    """Keep the nodes of a job that names them all, and only these, from the jobs behind it."""
    job = world.jobs[slot]
    if job.reason in (RESOURCES, NODE_NOT_AVAIL):
        must = world.bits[MUST_ROW + 2 * job.own]
        for k in range(blocked.shape[0]):
            blocked[k] |= must[k]


@compiled
def _try_start(fixed: Fixed, world: World, scratch: Scratch, record: Record, slot: int) -> bool:
    """Start the job if partition, limits and nodes allow; else leave the reason in it."""
    job = world.jobs[slot]
    blocked, usable, chosen, work = scratch.bits[0], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    if fixed.partitions[job.partition].up == 0:
        job.reason = DOWN
        return False
    obstacle = limits.obstacle(fixed, world, slot)
    if obstacle != NONE:
        job.reason = obstacle
        return False
    nodes.candidates(fixed, world, slot, usable)
    for k in range(usable.shape[0]):
        usable[k] &= ~blocked[k]
    nodes.apply_reservations(fixed, world, slot, world.sim[0].now, usable)
    if nodes.keep_fitting(fixed, world, slot, usable) < job.nodes:
        job.reason = NODE_NOT_AVAIL if nodes.lacks(world, slot, world.bits[UP_ROW]) else RESOURCES
        return False
    nodes.choose(fixed, world, slot, usable, world.free, chosen, work)
    lifecycle.start(fixed, world, record, slot, chosen)
    return True
