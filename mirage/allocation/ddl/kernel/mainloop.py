"""The clock: on to the next time at which something may be decided, and whole runs by one fixed order."""

from __future__ import annotations

from mirage.allocation.ddl.kernel import lifecycle, placing, queues
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import (
    DECIDE,
    INFINITY,
    NEED_SPACE,
    OVER,
    STUCK,
    THRASHING,
    Draft,
    Fixed,
    Queues,
    Room,
    Site,
    World,
)

MOST_FUTILE = 10
"""Preemptions for each task, in a row and for nothing, after which it is clear that it continues like that."""
ROUNDING = 1e-6
"""Of the sum of all free shares, after very many changes."""


@compiled
def advance(fixed: Fixed, site: Site, world: World) -> int:
    """Continue until something is pending after an arrival, an end or a quantum; OVER when nothing happens
    more."""
    sim = world.sim[0]
    sim.fresh = 0
    while True:
        if sim.log + sim.held > world.log.shape[0]:
            return NEED_SPACE
        if sim.futile > MOST_FUTILE * fixed.tasks.shape[0]:
            return THRASHING
        time = _next(fixed, world)
        if time == INFINITY:
            return OVER if sim.pending == 0 else STUCK
        _pass_time(world, time)
        while sim.running > 0 and world.states[world.agenda[0]].end <= time:
            lifecycle.finish(fixed, site, world, world.agenda[0])
            sim.events += 1
        while sim.arrived < fixed.arrivals.shape[0] and _next_arrival(fixed, world) <= time:
            lifecycle.arrive(fixed, world, fixed.arrivals[sim.arrived])
            sim.events += 1
        if sim.pending > 0:
            sim.decided = time
            return DECIDE


@inlined
def _next_arrival(fixed: Fixed, world: World) -> float:
    return fixed.tasks[fixed.arrivals[world.sim[0].arrived]].submit


@inlined
def _next(fixed: Fixed, world: World) -> float:
    """When something happens next."""
    sim, time = world.sim[0], INFINITY
    if sim.arrived < fixed.arrivals.shape[0]:
        time = _next_arrival(fixed, world)
    if sim.running > 0:
        time = min(time, world.states[world.agenda[0]].end)
        if sim.pending > 0:
            time = min(time, sim.decided + fixed.config[0].quantum)
    return time


@inlined
def _pass_time(world: World, time: float) -> None:
    sim = world.sim[0]
    if sim.pending > 0:
        sim.waiting += time - sim.now
        sim.idle_waiting += (time - sim.now) * sim.free
    sim.now = time


@compiled
def play_in_order(fixed: Fixed, site: Site, world: World, draft: Draft, lines: Queues, code: int) -> int:
    """Run to the end without preemption, tasks by ``lines.key``; OVER, STUCK, or NEED_SPACE to be called again."""
    queues.fill(site, lines, world.pending, world.sim[0].pending)
    while True:
        _start_in_order(fixed, site, world, draft, lines, code)
        answer = advance(fixed, site, world)
        if answer != DECIDE:
            return answer
        for k in range(world.sim[0].fresh):
            queues.push(site, lines, world.fresh[k])


@compiled
def _start_in_order(fixed: Fixed, site: Site, world: World, draft: Draft, lines: Queues, code: int) -> None:
    """Start what fits; of tasks that need the same, the first that fails speaks for all behind it."""
    room = Room(world.free, world.cpus, world.memory)
    for likeness in range(draft.failed.shape[0]):
        draft.failed[likeness] = 0
    while True:
        likeness = queues.foremost(draft, lines)
        if likeness < 0:
            return
        task = queues.head(lines, likeness)
        need = site.needs[task]
        enough = need.devices * need.share <= world.sim[0].free + ROUNDING
        if enough and placing.choose(site, room, draft, task, code):
            queues.drop_head(lines, likeness)
            lifecycle.start(fixed, site, world, draft, task)
        elif fixed.config[0].strict == 1:
            return
        else:
            draft.failed[likeness] = 1
