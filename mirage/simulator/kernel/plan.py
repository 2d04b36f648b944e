"""The plan of a backfill pass: a chain of time slots, each with the nodes that no planned job holds in it."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, nodes
from mirage.simulator.kernel.compile import inlined
from mirage.simulator.kernel.layout import SINCE_24_11, UP_ROW, Fixed, Scratch, World

END = -1


@inlined
def open_plan(fixed: Fixed, world: World, scratch: Scratch) -> int:
    """One time slot from now to the end of the window with all nodes that are up; returns slots used."""
    first = scratch.times[0]
    first.begin, first.end, first.next = world.sim[0].now, world.sim[0].now + fixed.config[0].bf_window, END
    bitsets.assign(scratch.space[0], world.bits[UP_ROW])
    if fixed.config[0].counted == 1:
        scratch.counts[:] = 0
    return 1


@inlined
def window(
    fixed: Fixed, world: World, scratch: Scratch, slot: int, begin: int, usable: np.ndarray
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
def _too_few(fixed: Fixed, world: World, scratch: Scratch, slot: int, t: int) -> bool:
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
def stays_free(fixed: Fixed, world: World, scratch: Scratch, slot: int, start: int, chosen: np.ndarray) -> bool:
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
