"""The clock: on to the next time at which something may be decided, and obeying what was."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import lifecycle, sharing, waiting
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import (
    DECIDE,
    INFINITY,
    NEED_SPACE,
    OVER,
    STUCK,
    UNTIL,
    Fixed,
    World,
)


@compiled
def advance(fixed: Fixed, world: World, until: float) -> int:
    """Continue until a request waits next to a free unit after something has happened, at most to ``until``."""
    sim, units = world.sim[0], world.running.shape[0]
    while True:
        if _lacks_space(fixed, world):
            return NEED_SPACE
        time = _next(fixed, world)
        if time == INFINITY and (sim.ready == 0 or until == INFINITY):
            return OVER if sim.ready == 0 else STUCK
        if time > until:
            sim.now = max(until, sim.now)
            return UNTIL
        sim.now = time
        _end_pieces(fixed, world)
        while sim.arrived < fixed.arrival.shape[0] and fixed.arrival[sim.arrived] <= time:
            if waiting.is_tight(world, units + 1):
                return NEED_SPACE
            lifecycle.arrive(fixed, world)
        sharing.share(fixed, world)
        if sim.ready > 0 and sim.busy < units:
            return DECIDE


@inlined
def _lacks_space(fixed: Fixed, world: World) -> bool:
    units = world.running.shape[0]
    short = fixed.config[0].logged == 1 and world.sim[0].log + units > world.log.shape[0]
    return short or waiting.is_tight(world, units + 1)


@inlined
def _next(fixed: Fixed, world: World) -> float:
    """When something happens next."""
    sim, time = world.sim[0], INFINITY
    if sim.arrived < fixed.arrival.shape[0]:
        time = max(fixed.arrival[sim.arrived], sim.now)
    for unit in range(world.running.shape[0]):
        if world.running[unit] >= 0:
            time = min(time, world.free_at[unit])
    return time


@inlined
def _end_pieces(fixed: Fixed, world: World) -> None:
    for unit in range(world.running.shape[0]):
        if world.running[unit] >= 0 and world.free_at[unit] <= world.sim[0].now:
            lifecycle.finish(fixed, world, unit)


@compiled
def obey(fixed: Fixed, world: World, requests: np.ndarray, units: np.ndarray, count: int) -> int:
    """Begin the next pieces of these requests; the first row of what cannot be executed, else -1."""
    for i in range(count):
        request, unit = requests[i], units[i]
        if not (0 <= unit < world.running.shape[0]) or not _is_ready(world, request):
            return i
        if not lifecycle.can_begin(fixed, world, request, unit):
            return i
        lifecycle.begin(fixed, world, request, unit)
    if count > 0:
        sharing.share(fixed, world)
    return -1


@inlined
def go_on(fixed: Fixed, world: World, until: float) -> int:
    """``advance``; where it is cut short for want of space, nothing is decided again when it is called again."""
    world.sim[0].decided = 1
    answer = advance(fixed, world, until)
    world.sim[0].decided = 1 if answer == NEED_SPACE else 0
    return answer


@inlined
def is_to_decide(world: World) -> bool:
    """Whether a request waits next to a free unit."""
    return world.sim[0].ready > 0 and world.sim[0].busy < world.running.shape[0]


@inlined
def _is_ready(world: World, request: int) -> bool:
    sim, place = world.sim[0], waiting.find(world, request)
    return place < sim.head + sim.ready and world.ready[place] == request
