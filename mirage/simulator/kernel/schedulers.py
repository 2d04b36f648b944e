"""The two schedulers of slurmctld: the main loop and backfill (man slurm.conf, SchedulerParameters).

The main loop (default_queue_depth, sched_interval) tries jobs in order of priority. The first job of a partition
that does not fit blocks the partition, and its nodes for partitions of lower priority; jobs held by limits block
nothing. A job that names all its nodes blocks just these.

Backfill (bf_*) goes through every pending job, in order of priority: it is started now if that delays no job
planned before it, else planned for its earliest start and its nodes kept for it. A job's earliest start is found
as slurmctld does: take the nodes that stay free of planned jobs for the job's whole limit from some slot on, and
give back running jobs' nodes in the order of their limits until it fits (``backfill_plan``).

A pass of backfill that only wants to start jobs stops as soon as no job further down could start now: resources
only shrink during a pass, so a job that needs at least as much, for at least as long, as one that could not
start cannot start either. Starts are the same as those of the full pass.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import backfill_plan, bitsets, eligibility, lifecycle, nodes, priorities
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    COMPLETING_ROW,
    DOWN,
    MUST_ROW,
    NEVER,
    NODE_NOT_AVAIL,
    NONE,
    RESOURCES,
    SINCE_24_11,
    SINCE_25_05,
    UP_ROW,
    ControllerState,
    Fixed,
    KernelRecord,
    Scratch,
)


@compiled
def run_main(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, depth: int) -> bool:
    """Start what can start among the first ``depth`` eligible jobs; True if the depth cut the queue."""
    sim, pending = world.sim[0], world.pending
    eligibility.notice(fixed, world)
    if sim.idle == 0 or sim.pending == 0:
        return False
    priorities.refresh(fixed, world, scratch)
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
def _keep_listed(world: ControllerState, slot: int, blocked: np.ndarray) -> None:
    """Keep the nodes of a job that names them all, and only these, from the jobs behind it."""
    job = world.jobs[slot]
    if job.reason in (RESOURCES, NODE_NOT_AVAIL):
        must = world.bits[MUST_ROW + 2 * job.own]
        for k in range(blocked.shape[0]):
            blocked[k] |= must[k]


@compiled
def _try_start(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, slot: int) -> bool:
    """Start the job if partition, limits and nodes allow; else leave the reason in it."""
    job = world.jobs[slot]
    blocked, usable, chosen, work = scratch.bits[0], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    if fixed.partitions[job.partition].up == 0:
        job.reason = DOWN
        return False
    obstacle = lifecycle.obstacle(fixed, world, slot)
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


SHAPES = 48


@compiled
def run_backfill(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, full: bool) -> None:
    """One pass. ``full``: plan every job and leave the planned starts in ``expected``."""
    sim, config, pending = world.sim[0], fixed.config[0], world.pending
    sim.backfill_passes += 1
    eligibility.notice(fixed, world)
    if sim.pending == 0 or (sim.idle == 0 and not full):
        return
    priorities.refresh(fixed, world, scratch)
    used = backfill_plan.open_plan(fixed, world, scratch)
    released, shapes, tested, started = -1, 0, 0, 0
    n, tail, kept, i = sim.pending, sim.pending - 1, 0, 0
    while i < n:
        slot = pending[i]
        job = world.jobs[slot]
        if not full:
            tail, shapes = _last_hope(fixed, world, scratch, shapes, i, tail)
            if tail < i or sim.idle == 0:
                break
        if tested >= config.bf_max_job_test:
            break
        i += 1
        if not _considered(fixed, world, scratch, slot):
            pending[kept] = slot
            kept += 1
            continue
        tested += 1
        sim.backfill_tests += 1
        when, released = _earliest(fixed, world, scratch, slot, used, released)
        if when == sim.now and _can_start(fixed, world, scratch, slot):
            lifecycle.start(fixed, world, record, slot, scratch.bits[2])
            started += 1
            released = -1
            if started == config.bf_max_job_start:
                sim.backfill_due = sim.now + config.bf_interval
                break
            continue
        pending[kept] = slot
        kept += 1
        job.expected = when
        if not full:
            shapes = _remember_shape(fixed, world, scratch, shapes, slot)
        if when < NEVER and _reserves(fixed, world, scratch, slot):
            used = backfill_plan.reserve(fixed, scratch, used, when, when + job.limit)
    for k in range(i, n):
        pending[kept] = pending[k]
        kept += 1
    sim.pending = kept


@inlined
def _can_start(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> bool:
    """Whether the job can start now: on the nodes in ``scratch.bits[2]``, of which completing ones are exchanged.

    slurmctld plans with completing nodes and does not start on them; without others they are kept for the job.
    """
    job, completing = world.jobs[slot], world.bits[COMPLETING_ROW]
    others, chosen = scratch.bits[1], scratch.bits[2]
    if bitsets.count_common(chosen, completing) == 0:
        return True
    if job.listed > 0 and bitsets.count_common(world.bits[MUST_ROW + 2 * job.own], completing) > 0:
        return False
    for k in range(others.shape[0]):
        others[k] &= ~completing[k]
    if bitsets.count(others) < job.nodes - job.listed:
        return False
    nodes.choose(fixed, world, slot, others, world.free, chosen, scratch.bits[3])
    return True


@inlined
def _considered(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> bool:
    """Whether eligibility, limits and backfill's own counters let this pass look at the job."""
    job, config = world.jobs[slot], fixed.config[0]
    if job.eligible == NEVER or fixed.partitions[job.partition].up == 0:
        return False
    obstacle = lifecycle.obstacle(fixed, world, slot)
    if obstacle != NONE:
        job.reason = obstacle
        return False
    if config.bf_max_job_part > 0 and _exceeds(scratch, job.partition, config.bf_max_job_part):
        return False
    user = config.partitions + job.user
    return not (config.bf_max_job_user > 0 and _exceeds(scratch, user, config.bf_max_job_user))


@inlined
def _exceeds(scratch: Scratch, place: int, most: int) -> bool:
    """Count one more at ``place``; whether that is more than ``most``."""
    scratch.counts[place] += 1
    return scratch.counts[place] > most


@inlined
def _covers(fixed: Fixed, world: ControllerState, small: int, large: int) -> bool:
    """Whether the job in ``large`` needs at least what the job in ``small`` needs, on the same nodes."""
    a, b = world.jobs[small], world.jobs[large]
    if (
        b.nodes < a.nodes
        or b.limit < a.limit
        or b.partition != a.partition
        or b.features != a.features
        or b.reservation != a.reservation
    ):
        return False
    if fixed.config[0].whole_nodes == 1:
        return True
    if b.exclusive < a.exclusive:
        return False
    for r in range(fixed.config[0].resources):
        if world.needs[large, r] < world.needs[small, r]:
            return False
    return True


@inlined
def _remember_shape(fixed: Fixed, world: ControllerState, scratch: Scratch, shapes: int, slot: int) -> int:
    """Note that a job could not start now, unless a smaller one is noted already; returns shapes noted.

    That a job's own nodes are taken says nothing of others.
    """
    if shapes == SHAPES or world.jobs[slot].listed > 0:
        return shapes
    for k in range(shapes):
        if _covers(fixed, world, scratch.failed[k], slot):
            return shapes
    scratch.failed[shapes] = slot
    return shapes + 1


@inlined
def _hopeless(fixed: Fixed, world: ControllerState, scratch: Scratch, shapes: int, slot: int) -> bool:
    """Whether the job cannot start in this pass, as far as can be said without planning it."""
    job = world.jobs[slot]
    if job.eligible == NEVER or job.nodes > world.sim[0].idle:
        return True
    for k in range(shapes):
        if _covers(fixed, world, scratch.failed[k], slot):
            return True
    return lifecycle.obstacle(fixed, world, slot) != NONE


@inlined
def _fits_now(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> bool:
    """Whether the job could start now next to what is planned so far."""
    usable = scratch.bits[0]
    left, _ = backfill_plan.window(fixed, world, scratch, slot, world.sim[0].now, usable)
    return (
        left >= world.jobs[slot].nodes and nodes.keep_fitting(fixed, world, slot, usable) >= world.jobs[slot].nodes
    )


@compiled
def _last_hope(
    fixed: Fixed, world: ControllerState, scratch: Scratch, shapes: int, first: int, tail: int
) -> tuple[int, int]:
    """The last place from ``first`` to ``tail`` in the queue of a job that might start now; shapes noted."""
    while tail >= first:
        slot = world.pending[tail]
        if not _hopeless(fixed, world, scratch, shapes, slot):
            if _fits_now(fixed, world, scratch, slot):
                break
            shapes = _remember_shape(fixed, world, scratch, shapes, slot)
        tail -= 1
    return tail, shapes


@inlined
def _reserves(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> bool:
    """Whether the job is old and important enough, and not one too many of its array, to have nodes kept."""
    job, config, sim = world.jobs[slot], fixed.config[0], world.sim[0]
    if config.bf_min_prio_reserve > 0 and job.priority < config.bf_min_prio_reserve:
        return False
    if config.bf_min_age_reserve > 0 and sim.now - job.eligible < config.bf_min_age_reserve:
        return False
    place = config.partitions + config.users + job.array
    most = config.bf_max_job_array_resv
    return not (most > 0 and job.array >= 0 and _exceeds(scratch, place, most))


@inlined
def _earliest(
    fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, used: int, released: int
) -> tuple[int, int]:
    """The job's earliest start within the window (NEVER: none), its nodes in ``scratch.bits[2]``."""
    sim, job = world.sim[0], world.jobs[slot]
    usable, fitting, chosen, work = scratch.bits[0], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    horizon, whole = sim.now + fixed.config[0].bf_window, fixed.config[0].whole_nodes == 1
    begin, release = sim.now, fixed.config[0].release
    while begin != 0 and begin <= horizon:
        left, later = backfill_plan.window(fixed, world, scratch, slot, begin, usable)
        if left < job.nodes:
            begin = later
            continue
        bitsets.assign(fitting, usable)
        fits = nodes.keep_fitting(fixed, world, slot, fitting) >= job.nodes
        if release >= SINCE_24_11 and begin > sim.now:
            fits = False  # what is free now says nothing of then
        start, last = begin, -1
        if not fits:
            if released < 0:
                released = backfill_plan.list_releases(fixed, world, scratch)
            freed, last = backfill_plan.wait_for_nodes(
                fixed, world, scratch, slot, usable, fitting, released, begin, later
            )
            start = max(begin, freed)
        if start < NEVER:
            free = world.free if fits or whole else scratch.free
            nodes.choose(fixed, world, slot, fitting, free, chosen, work)
            if release >= SINCE_25_05 and last >= 0:
                start = max(begin, backfill_plan.last_end(world, scratch, last, chosen))
        if later != 0 and start > later:
            # Nodes kept for planned jobs until then may do sooner.
            begin = later
            continue
        if start > horizon:
            return NEVER, released
        if start > begin and not backfill_plan.stays_free(fixed, world, scratch, slot, start, chosen):
            begin = start
            continue
        return start, released
    return NEVER, released
