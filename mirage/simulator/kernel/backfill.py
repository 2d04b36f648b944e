"""Backfill (man slurm.conf, SchedulerParameters bf_*): every pending job, in order of priority, is started now
if that delays no job planned before it, else planned for its earliest start and its nodes kept for it.

The plan is a chain of time slots, each with the set of nodes that no planned job holds in it. A job's
earliest start is found as slurmctld does: take the nodes that stay free of planned jobs for the job's whole
limit from some slot on, and give back running jobs' nodes in the order of their limits until it fits. Running
jobs are given back in groups whose span starts at 30 s and doubles (or grows by bf_window_linear) with every
group, so far-away starts are known only roughly, as in Slurm.

A pass that only wants to start jobs stops as soon as no job further down could start now: resources only
shrink during a pass, so a job that needs at least as much, for at least as long, as one that could not start
cannot start either. Starts are the same as those of the full pass.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, lifecycle, limits, nodes, queue
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import NEVER, NONE, UP_ROW, Fixed, Record, Scratch, World

FIRST_SPAN = 30
LONGEST_SPAN = 1 << 40
SHAPES = 48
END = -1


@compiled
def run(fixed: Fixed, world: World, scratch: Scratch, record: Record, full: bool) -> None:
    """One pass. ``full``: plan every job and leave the planned starts in ``expected``."""
    sim, config, pending = world.sim[0], fixed.config[0], world.pending
    sim.backfill_passes += 1
    if sim.pending == 0 or (sim.idle == 0 and not full):
        return
    queue.refresh(fixed, world, scratch)
    used = _open_plan(fixed, world, scratch)
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
        if when == sim.now:
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
            used = _reserve(fixed, scratch, used, when, when + job.limit)
    for k in range(i, n):
        pending[kept] = pending[k]
        kept += 1
    sim.pending = kept


@inlined
def _open_plan(fixed: Fixed, world: World, scratch: Scratch) -> int:
    """One time slot from now to the end of the window with all nodes that are up; returns slots used."""
    first = scratch.times[0]
    first.begin, first.end, first.next = world.sim[0].now, world.sim[0].now + fixed.config[0].bf_window, END
    bitsets.assign(scratch.space[0], world.bits[UP_ROW])
    if fixed.config[0].counted == 1:
        scratch.counts[:] = 0
    return 1


@inlined
def _considered(fixed: Fixed, world: World, scratch: Scratch, slot: int) -> bool:
    """Whether eligibility, limits and backfill's own counters let this pass look at the job."""
    job, config = world.jobs[slot], fixed.config[0]
    if job.eligible == NEVER or fixed.partitions[job.partition].up == 0:
        return False
    obstacle = limits.obstacle(fixed, world, slot)
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
def _covers(fixed: Fixed, world: World, small: int, large: int) -> bool:
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
def _remember_shape(fixed: Fixed, world: World, scratch: Scratch, shapes: int, slot: int) -> int:
    """Note that a job could not start now, unless a smaller one is noted already; returns shapes noted."""
    if shapes == SHAPES:
        return shapes
    for k in range(shapes):
        if _covers(fixed, world, scratch.failed[k], slot):
            return shapes
    scratch.failed[shapes] = slot
    return shapes + 1


@inlined
def _hopeless(fixed: Fixed, world: World, scratch: Scratch, shapes: int, slot: int) -> bool:
    """Whether the job cannot start in this pass, as far as can be said without planning it."""
    job = world.jobs[slot]
    if job.eligible == NEVER or job.nodes > world.sim[0].idle:
        return True
    for k in range(shapes):
        if _covers(fixed, world, scratch.failed[k], slot):
            return True
    return limits.obstacle(fixed, world, slot) != NONE


@inlined
def _fits_now(fixed: Fixed, world: World, scratch: Scratch, slot: int) -> bool:
    """Whether the job could start now beside what is planned so far."""
    usable = scratch.bits[0]
    left, _ = _window(fixed, world, scratch, slot, world.sim[0].now, usable)
    return (
        left >= world.jobs[slot].nodes and nodes.keep_fitting(fixed, world, slot, usable) >= world.jobs[slot].nodes
    )


@compiled
def _last_hope(
    fixed: Fixed, world: World, scratch: Scratch, shapes: int, first: int, tail: int
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
def _reserves(fixed: Fixed, world: World, scratch: Scratch, slot: int) -> bool:
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
def _window(
    fixed: Fixed, world: World, scratch: Scratch, slot: int, begin: int, usable: np.ndarray
) -> tuple[int, int]:
    """Nodes no plan or reservation holds from ``begin`` for the job's limit.

    Returns how many there are (counting no further once they are too few) and the next instant after ``begin``
    at which there may be enough, 0 if there is none.
    """
    nodes.candidates(fixed, world, slot, usable)
    later = nodes.apply_reservations(fixed, world, slot, begin, usable)
    end, wanted, t = begin + world.jobs[slot].limit, world.jobs[slot].nodes, 0
    while scratch.times[t].end <= begin and scratch.times[t].next != END:
        t = scratch.times[t].next
    part = scratch.times[t]
    if part.next != END and (later == 0 or part.end < later):
        later = part.end
    left = bitsets.count(usable)
    while left >= wanted and part.begin < end and part.end > begin:
        left = 0
        space = scratch.space[t]
        for k in range(usable.shape[0]):
            word = usable[k] & space[k]
            usable[k] = word
            left += bitsets.size(word)
        if left < wanted and _too_few(fixed, world, scratch, slot, t):
            # No window that reaches into this time slot will do.
            later = part.end if part.next != END else 0
        if part.next == END:
            break
        t = part.next
        part = scratch.times[t]
    return left, later


@inlined
def _too_few(fixed: Fixed, world: World, scratch: Scratch, slot: int, t: int) -> bool:
    """Whether time slot ``t`` alone has fewer nodes left of the job's partition than it needs."""
    mask = fixed.masks[fixed.partitions[world.jobs[slot].partition].mask]
    return bitsets.count_common(mask, scratch.space[t]) < world.jobs[slot].nodes


@inlined
def _earliest(
    fixed: Fixed, world: World, scratch: Scratch, slot: int, used: int, released: int
) -> tuple[int, int]:
    """The job's earliest start within the window (NEVER: none), its nodes in ``scratch.bits[2]``."""
    sim, job = world.sim[0], world.jobs[slot]
    usable, fitting, chosen, work = scratch.bits[0], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    horizon = sim.now + fixed.config[0].bf_window
    begin = sim.now
    while begin != 0 and begin <= horizon:
        left, later = _window(fixed, world, scratch, slot, begin, usable)
        if left < job.nodes:
            begin = later
            continue
        bitsets.assign(fitting, usable)
        if nodes.keep_fitting(fixed, world, slot, fitting) >= job.nodes:
            start = begin
        else:
            if released < 0:
                released = _list_releases(fixed, world, scratch)
            start = max(begin, _wait_for_nodes(fixed, world, scratch, slot, usable, fitting, released))
        if start > horizon:
            return NEVER, released
        nodes.choose(fixed, fitting, job.nodes, chosen, work)
        if start > begin and not _stays_free(fixed, world, scratch, slot, start, chosen):
            begin = start
            continue
        return start, released
    return NEVER, released


@inlined
def _stays_free(fixed: Fixed, world: World, scratch: Scratch, slot: int, start: int, chosen: np.ndarray) -> bool:
    """Whether no plan and no advance reservation holds ``chosen`` from ``start`` for the job's limit."""
    end, t = start + world.jobs[slot].limit, 0
    while t != END:
        part = scratch.times[t]
        if part.begin >= end:
            break
        if part.end > start:
            space = scratch.space[t]
            for k in range(chosen.shape[0]):
                if chosen[k] & ~space[k] != bitsets.ZERO:
                    return False
        t = part.next
    if fixed.config[0].reservations > 0:
        work = scratch.bits[3]
        bitsets.assign(work, chosen)
        nodes.apply_reservations(fixed, world, slot, start, work)
        return bitsets.count(work) == bitsets.count(chosen)
    return True


@inlined
def _list_releases(fixed: Fixed, world: World, scratch: Scratch) -> int:
    """Fill ``scratch.release`` with the running jobs by the end of their limits, and their nodes as sets."""
    for i in range(world.sim[0].running):
        slot = world.running[i]
        job, entry, held = world.jobs[slot], scratch.release[i], scratch.held[i]
        entry.time, entry.slot = job.limit_end, slot
        entry.kill = job.limit_end + fixed.partitions[job.partition].over
        entry.low, entry.high = held.shape[0], 0
        for k in range(held.shape[0]):
            held[k] = bitsets.ZERO
        a = job.first_alloc
        while a >= 0:
            node = world.allocs[a].node
            bitsets.add(held, node)
            entry.low, entry.high = min(entry.low, node >> 6), max(entry.high, (node >> 6) + 1)
            a = world.allocs[a].next_of_job
    return world.sim[0].running


@inlined
def _wait_for_nodes(
    fixed: Fixed,
    world: World,
    scratch: Scratch,
    slot: int,
    usable: np.ndarray,
    fitting: np.ndarray,
    released: int,
) -> int:
    """When enough of ``usable`` has room for the job; ``fitting`` (those with room now) grows by them."""
    whole, now = fixed.config[0].whole_nodes == 1, world.sim[0].now
    if not whole:
        for node in range(scratch.free.shape[0]):
            bitsets.assign(scratch.free[node], world.free[node])
    have, wanted = bitsets.count(fitting), world.jobs[slot].nodes
    linear = fixed.config[0].bf_window_linear
    span, group_end, found = np.int64(FIRST_SPAN), np.int64(-1), NEVER
    for i in range(released):
        entry, held = scratch.release[i], scratch.held[i]
        if not _touches(held, usable, entry.low, entry.high):
            continue
        if entry.time > group_end:
            if have >= wanted:
                break
            if group_end >= 0:
                span = span + linear if linear > 0 else min(2 * span, LONGEST_SPAN)
            group_end = entry.time + span
        found = entry.time if entry.time > now else max(entry.kill, now + 1)
        if whole:
            have += _gain(held, usable, fitting, entry.low, entry.high)
        else:
            have += _gain_shared(fixed, world, scratch, slot, entry.slot, usable, fitting)
    return found if have >= wanted else NEVER


@inlined
def _touches(held: np.ndarray, usable: np.ndarray, low: int, high: int) -> bool:
    for k in range(low, high):
        if held[k] & usable[k] != bitsets.ZERO:
            return True
    return False


@inlined
def _gain(held: np.ndarray, usable: np.ndarray, fitting: np.ndarray, low: int, high: int) -> int:
    """Add the usable nodes of a job that took them whole to ``fitting``; returns how many."""
    gained = 0
    for k in range(low, high):
        word = held[k] & usable[k]
        fitting[k] |= word
        gained += bitsets.size(word)
    return gained


@inlined
def _gain_shared(
    fixed: Fixed,
    world: World,
    scratch: Scratch,
    slot: int,
    leaving: int,
    usable: np.ndarray,
    fitting: np.ndarray,
) -> int:
    """Give back what the job in ``leaving`` holds; add nodes with room for ``slot`` to ``fitting``, count them."""
    gained, a = 0, world.jobs[leaving].first_alloc
    while a >= 0:
        node = world.allocs[a].node
        if (
            bitsets.has(usable, node)
            and _room_after(fixed, world, scratch, slot, leaving, node)
            and not bitsets.has(fitting, node)
        ):
            bitsets.add(fitting, node)
            gained += 1
        a = world.allocs[a].next_of_job
    return gained


@inlined
def _room_after(fixed: Fixed, world: World, scratch: Scratch, slot: int, leaving: int, node: int) -> bool:
    """Give back what the job in ``leaving`` holds of ``node``; whether the job in ``slot`` fits then."""
    resources, free = fixed.config[0].resources, scratch.free
    alone = world.jobs[leaving].exclusive == 1
    for r in range(resources):
        free[node, r] += fixed.capacity[node, r] if alone else world.needs[leaving, r]
    free[node, resources] -= 1
    if world.jobs[slot].exclusive == 1 and free[node, resources] > 0:
        return False
    for r in range(resources):
        if free[node, r] < world.needs[slot, r]:
            return False
    return True


@inlined
def _split(scratch: Scratch, used: int, t: int, at: int) -> int:
    """Cut time slot ``t`` in two at ``at``; returns slots used."""
    part, new = scratch.times[t], scratch.times[used]
    new.begin, new.end, new.next = at, part.end, part.next
    part.end, part.next = at, used
    bitsets.assign(scratch.space[used], scratch.space[t])
    return used + 1


@inlined
def _reserve(fixed: Fixed, scratch: Scratch, used: int, start: int, end: int) -> int:
    """Keep ``scratch.bits[2]`` for a planned job, to the resolution of the plan; returns slots used."""
    chosen, grain = scratch.bits[2], fixed.config[0].bf_resolution
    start, end = max(start // grain * grain, scratch.times[0].begin), end // grain * grain
    t = 0
    while t != END:
        if used + 2 > scratch.times.shape[0]:
            return used
        part = scratch.times[t]
        if part.begin >= end:
            break
        if part.end > start:
            if part.begin < start:
                used = _split(scratch, used, t, start)
                t = scratch.times[t].next
                part = scratch.times[t]
            if part.end > end:
                used = _split(scratch, used, t, end)
            space = scratch.space[t]
            for k in range(space.shape[0]):
                space[k] &= ~chosen[k]
        t = scratch.times[t].next
    return used
