"""The plan of a backfill pass: time slots with free nodes, and when running jobs give enough nodes back.

The plan is a chain of time slots, each with the nodes that no planned job holds in it.

Running jobs are given back in the order in which their limits end, in groups, and the job is tried after each
group: far-away starts are known only roughly. All groups end at spans counted from the first end, rounded up to
30 s. The span is 30 s at first and doubles, or grows by bf_window_linear (man slurm.conf), until it reaches the
next end.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, nodes
from mirage.simulator.kernel.compile import inlined
from mirage.simulator.kernel.layout import NEVER, SINCE_24_11, SINCE_25_05, UP_ROW, ControllerState, Fixed, Scratch

FIRST_SPAN = 30
LONGEST_SPAN = 1 << 40


@inlined
def list_releases(fixed: Fixed, world: ControllerState, scratch: Scratch) -> int:
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
def wait_for_nodes(
    fixed: Fixed,
    world: ControllerState,
    scratch: Scratch,
    slot: int,
    usable: np.ndarray,
    fitting: np.ndarray,
    released: int,
    begin: int,
    until: int,
) -> tuple[int, int]:
    """When enough of ``usable`` has room for the job; ``fitting`` (those with room now) grows by them.

    Since 24.11 what ends before ``begin`` is given back at once (since 25.05 what ends at ``begin`` too), and what
    ends behind ``until`` (0: any time) not. Returns also the last running job given back, -1 where those up to
    ``begin`` do.
    """
    now, first, release = world.sim[0].now, 0, fixed.config[0].release
    if fixed.config[0].whole_nodes == 0:
        for node in range(scratch.free.shape[0]):
            bitsets.assign(scratch.free[node], world.free[node])
    have, wanted = bitsets.count(fitting), world.jobs[slot].nodes
    if release >= SINCE_24_11 and begin > now:
        past = begin + 1 if release >= SINCE_25_05 else begin
        while first < released and scratch.release[first].time < past:
            have += _given_back(fixed, world, scratch, slot, first, usable, fitting)
            first += 1
        if have >= wanted and not nodes.lacks(world, slot, fitting):
            return begin, -1
    linear = fixed.config[0].bf_window_linear
    span, origin, last = np.int64(FIRST_SPAN), np.int64(-1), -1
    for i in range(first, released):
        entry, held = scratch.release[i], scratch.held[i]
        if release >= SINCE_24_11 and 0 < until < entry.time:
            break
        if not _touches(held, usable, entry.low, entry.high):
            continue
        if origin < 0:
            origin = (entry.time // FIRST_SPAN + 1) * FIRST_SPAN
        last = i
        have += _given_back(fixed, world, scratch, slot, i, usable, fitting)
        if i + 1 < released and scratch.release[i + 1].time > origin + span:
            if have >= wanted and not nodes.lacks(world, slot, fitting):
                break
            while scratch.release[i + 1].time > origin + span:
                span = span + linear if linear > 0 else min(2 * span, LONGEST_SPAN)
    if last < 0 or have < wanted or nodes.lacks(world, slot, fitting):
        return NEVER, -1
    return _end(world, scratch, last), last


@inlined
def _end(world: ControllerState, scratch: Scratch, i: int) -> int:
    """When the ``i``-th running job is taken to end: at its limit, or when slurmctld will end it."""
    entry, now = scratch.release[i], world.sim[0].now
    return entry.time if entry.time > now else max(entry.kill, now + 1)


@inlined
def last_end(world: ControllerState, scratch: Scratch, last: int, chosen: np.ndarray) -> int:
    """The end of the last of the running jobs up to the ``last``-th that holds one of ``chosen``."""
    i = last
    while i > 0 and not _touches(scratch.held[i], chosen, scratch.release[i].low, scratch.release[i].high):
        i -= 1
    return _end(world, scratch, i)


@inlined
def _given_back(
    fixed: Fixed,
    world: ControllerState,
    scratch: Scratch,
    slot: int,
    i: int,
    usable: np.ndarray,
    fitting: np.ndarray,
) -> int:
    """Add what the ``i``-th running job gives back to ``fitting``; returns how many nodes."""
    entry, held = scratch.release[i], scratch.held[i]
    if fixed.config[0].whole_nodes == 1:
        return _gain(held, usable, fitting, entry.low, entry.high)
    return _gain_shared(fixed, world, scratch, slot, entry.slot, usable, fitting)


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
    world: ControllerState,
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
def _room_after(
    fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, leaving: int, node: int
) -> bool:
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


END = -1


@inlined
def open_plan(fixed: Fixed, world: ControllerState, scratch: Scratch) -> int:
    """One time slot from now to the end of the window with all nodes that are up; returns slots used."""
    first = scratch.times[0]
    first.begin, first.end, first.next = world.sim[0].now, world.sim[0].now + fixed.config[0].bf_window, END
    bitsets.assign(scratch.space[0], world.bits[UP_ROW])
    if fixed.config[0].counted == 1:
        scratch.counts[:] = 0
    return 1


@inlined
def window(
    fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, begin: int, usable: np.ndarray
) -> tuple[int, int]:
    """Nodes no plan or reservation holds from ``begin`` for the job's limit.

    Returns how many they offer the job (counting no further once they are too few) and the next time after
    ``begin`` from which there may be more of them, 0 if there is none. As in slurmctld that is sought at the ends
    of the time slots that the job would reach into, of which the one that begins at its last time is one, and
    of the slot behind these; since 24.11 it is the end of the one behind that where none of them has more.
    """
    nodes.candidates(fixed, world, slot, usable)
    later = nodes.apply_reservations(fixed, world, slot, begin, usable)
    allowed, gain = scratch.bits[1], 0
    bitsets.assign(allowed, usable)
    end, wanted, t = begin + world.jobs[slot].limit, world.jobs[slot].nodes, 0
    while scratch.times[t].end <= begin and scratch.times[t].next != END:
        t = scratch.times[t].next
    part = scratch.times[t]
    left = bitsets.count(usable)
    while (left >= wanted or gain == 0) and part.end > begin:
        space = scratch.space[t]
        if part.begin > end:
            if part.next != END and gain == 0:
                following = scratch.times[part.next]
                if _adds(allowed, scratch.space[part.next], usable, space):
                    gain = part.end
                elif fixed.config[0].release >= SINCE_24_11 and following.next != END:
                    gain = following.end
            break
        left = 0
        for k in range(usable.shape[0]):
            word = usable[k] & space[k]
            usable[k] = word
            left += bitsets.size(word)
        if part.next == END:
            break
        if left < wanted and _too_few(fixed, world, scratch, slot, t):
            # No window that reaches into this time slot will do.
            gain = later = part.end
            break
        if gain == 0 and _adds(allowed, scratch.space[part.next], usable, space):
            gain = part.end
        t = part.next
        part = scratch.times[t]
    if gain != 0 and (later == 0 or gain < later):
        later = gain
    if left >= wanted and nodes.lacks(world, slot, usable):
        left = 0
    return left, later


@inlined
def _adds(allowed: np.ndarray, following: np.ndarray, usable: np.ndarray, space: np.ndarray) -> bool:
    """Whether ``following`` has nodes, of those allowed, beyond what ``space`` has of ``usable``."""
    for k in range(usable.shape[0]):
        if allowed[k] & following[k] & ~(usable[k] & space[k]) != bitsets.ZERO:
            return True
    return False


@inlined
def _too_few(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, t: int) -> bool:
    """Whether time slot ``t`` alone has not the nodes left, of the job's partition, that it needs."""
    mask = fixed.masks[fixed.partitions[world.jobs[slot].partition].mask]
    space = scratch.space[t]
    return bitsets.count_common(mask, space) < world.jobs[slot].nodes or nodes.lacks(world, slot, space)


@inlined
def _last(fixed: Fixed, end: int) -> int:
    """The end of a planned job in the plan: the step of its grid before ``end``, since 24.11 the one behind."""
    grain = fixed.config[0].bf_resolution
    return (end + grain - 1 if fixed.config[0].release >= SINCE_24_11 else end) // grain * grain


@inlined
def stays_free(
    fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, start: int, chosen: np.ndarray
) -> bool:
    """Whether no plan and no advance reservation holds ``chosen`` from ``start`` for the job's limit."""
    grain = fixed.config[0].bf_resolution
    first, end, t = start // grain * grain, _last(fixed, start + world.jobs[slot].limit), 0
    while t != END:
        part = scratch.times[t]
        if part.begin >= end:
            break
        if part.end > first:
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
def _split(scratch: Scratch, used: int, t: int, at: int) -> int:
    """Cut time slot ``t`` in two at ``at``; returns slots used."""
    part, new = scratch.times[t], scratch.times[used]
    new.begin, new.end, new.next = at, part.end, part.next
    part.end, part.next = at, used
    bitsets.assign(scratch.space[used], scratch.space[t])
    return used + 1


@inlined
def reserve(fixed: Fixed, scratch: Scratch, used: int, start: int, end: int) -> int:
    """Keep ``scratch.bits[2]`` for a planned job, to the resolution of the plan; returns slots used."""
    chosen, grain = scratch.bits[2], fixed.config[0].bf_resolution
    start, end = max(start // grain * grain, scratch.times[0].begin), _last(fixed, end)
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
