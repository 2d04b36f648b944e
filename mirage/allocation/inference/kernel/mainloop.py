"""The clock and what happens to a request: it comes, its pieces begin and end, it is answered.

The clock goes on to the next time at which something may be decided, and what was decided is obeyed. The ready
requests are a window of an array, ascending by number, with room at both ends: who leaves or comes near an end
of the window moves only those between it and that end. Mostly it is the oldest who begin, and come back with
their next piece, so that a long queue costs no more than a short one.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import sharing
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import (
    DECIDE,
    INFINITY,
    NEED_SPACE,
    OVER,
    STUCK,
    UNTIL,
    SystemState,
    SystemTables,
)


@inlined
def is_tight(world: SystemState, coming: int) -> bool:
    """Whether there might not be room enough for so many more."""
    return 2 * (world.sim[0].ready + coming) > world.ready.shape[0]


@inlined
def find(world: SystemState, request: int) -> int:
    """Where the request stands, or would: a place in ``SystemState.ready``."""
    low = world.sim[0].head
    high = low + world.sim[0].ready
    while low < high:
        middle = (low + high) >> 1
        if world.ready[middle] < request:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def enter(world: SystemState, request: int) -> None:
    """Put a request where its number belongs."""
    sim, ready = world.sim[0], world.ready
    if sim.head == 0 or sim.head + sim.ready == ready.shape[0]:
        _centre(world)
    place, end = find(world, request), sim.head + sim.ready
    if place - sim.head < end - place:
        sim.head -= 1
        place -= 1
        for i in range(sim.head, place):
            ready[i] = ready[i + 1]
    else:
        for i in range(end, place, -1):
            ready[i] = ready[i - 1]
    ready[place] = request
    sim.ready += 1
    if sim.fresh < world.fresh.shape[0]:
        world.fresh[sim.fresh] = request
        sim.fresh += 1


@compiled
def leave(world: SystemState, request: int) -> None:
    """Take a request from among the ready; it is there."""
    sim, ready = world.sim[0], world.ready
    place, end = find(world, request), sim.head + sim.ready
    if place - sim.head < end - place:
        for i in range(place, sim.head, -1):
            ready[i] = ready[i - 1]
        sim.head += 1
    else:
        for i in range(place, end - 1):
            ready[i] = ready[i + 1]
    sim.ready -= 1


@compiled
def _centre(world: SystemState) -> None:
    """Move the window to the middle; it fills at most half of the array."""
    sim, ready = world.sim[0], world.ready
    first = (ready.shape[0] - sim.ready) >> 1
    if first < sim.head:
        for i in range(sim.ready):
            ready[first + i] = ready[sim.head + i]
    else:
        for i in range(sim.ready - 1, -1, -1):
            ready[first + i] = ready[sim.head + i]
    sim.head = first


@compiled
def arrive(fixed: SystemTables, world: SystemState) -> None:
    """The next request comes."""
    request = world.sim[0].arrived
    world.sim[0].arrived += 1
    world.ready_since[request] = fixed.arrival[request]
    if world.kept.shape[0] > 0:
        model = fixed.model[request]
        for column in range(world.kept.shape[1]):
            world.kept[request, column] = world.coming[model, column]
    enter(world, request)


@inlined
def can_begin(fixed: SystemTables, world: SystemState, request: int, unit: int) -> bool:
    """Whether the unit is free, and of a kind that can run the next piece."""
    return world.running[unit] < 0 and not np.isnan(fixed.seconds[world.piece[request], fixed.kind[unit]])


@compiled
def begin(fixed: SystemTables, world: SystemState, request: int, unit: int) -> None:
    """The next piece of a ready request begins, as soon as the decision has been made."""
    leave(world, request)
    state, now = world.units[unit], world.sim[0].now
    piece, kind = world.piece[request], fixed.kind[unit]
    seconds = fixed.seconds[piece, kind]
    if np.isnan(world.begin[request]):
        world.begin[request] = now
    state.began, state.since, state.left = now, now + fixed.config[0].decision_seconds, 1.0
    state.alone = state.rate = 1.0 / seconds
    world.drawn[unit] = state.share = fixed.dram_bytes[piece, kind] / seconds
    world.free_at[unit] = state.since + seconds
    world.running[unit] = request
    world.sim[0].busy += 1


@compiled
def finish(fixed: SystemTables, world: SystemState, unit: int) -> None:
    """The piece on a unit has ended: the request is answered, or ready with its next piece."""
    request, now, sim = world.running[unit], world.sim[0].now, world.sim[0]
    _account(fixed, world, request, unit)
    world.running[unit] = -1
    world.drawn[unit] = 0.0
    sim.busy -= 1
    sim.pieces += 1
    world.piece[request] += 1
    if world.piece[request] < fixed.first[fixed.model[request] + 1]:
        world.ready_since[request] = now
        enter(world, request)
        return
    world.end[request] = now
    sim.ended += 1
    tenant = fixed.tenant[request]
    world.tenant_ended[tenant] += 1
    if now <= fixed.deadline[request]:
        world.tenant_kept[tenant] += 1


@inlined
def _account(fixed: SystemTables, world: SystemState, request: int, unit: int) -> None:
    """Write down what the piece on a unit has cost."""
    state, sim = world.units[unit], world.sim[0]
    piece, kind = world.piece[request], fixed.kind[unit]
    world.served[request] += sim.now - state.began
    world.energy[request] += fixed.joules[piece, kind]
    state.busy += sim.now - state.began
    state.pieces += 1
    sim.bytes += fixed.dram_bytes[piece, kind]
    if fixed.config[0].logged == 1:
        row = world.log[sim.log]
        row.request, row.piece, row.unit = request, piece, unit
        row.begin, row.end = state.began, sim.now
        sim.log += 1


@compiled
def advance(fixed: SystemTables, world: SystemState, until: float) -> int:
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
            if is_tight(world, units + 1):
                return NEED_SPACE
            arrive(fixed, world)
        sharing.share(fixed, world)
        if sim.ready > 0 and sim.busy < units:
            return DECIDE


@inlined
def _lacks_space(fixed: SystemTables, world: SystemState) -> bool:
    units = world.running.shape[0]
    short = fixed.config[0].logged == 1 and world.sim[0].log + units > world.log.shape[0]
    return short or is_tight(world, units + 1)


@inlined
def _next(fixed: SystemTables, world: SystemState) -> float:
    """When something happens next."""
    sim, time = world.sim[0], INFINITY
    if sim.arrived < fixed.arrival.shape[0]:
        time = max(fixed.arrival[sim.arrived], sim.now)
    for unit in range(world.running.shape[0]):
        if world.running[unit] >= 0:
            time = min(time, world.free_at[unit])
    return time


@inlined
def _end_pieces(fixed: SystemTables, world: SystemState) -> None:
    for unit in range(world.running.shape[0]):
        if world.running[unit] >= 0 and world.free_at[unit] <= world.sim[0].now:
            finish(fixed, world, unit)


@compiled
def obey(fixed: SystemTables, world: SystemState, requests: np.ndarray, units: np.ndarray, count: int) -> int:
    """Begin the next pieces of these requests; the first row of what cannot be executed, else -1."""
    for i in range(count):
        request, unit = requests[i], units[i]
        if not (0 <= unit < world.running.shape[0]) or not _is_ready(world, request):
            return i
        if not can_begin(fixed, world, request, unit):
            return i
        begin(fixed, world, request, unit)
    if count > 0:
        sharing.share(fixed, world)
    return -1


@inlined
def go_on(fixed: SystemTables, world: SystemState, until: float) -> int:
    """``advance``; where it is cut short for want of space, nothing is decided again when it is called again."""
    world.sim[0].decided = 1
    answer = advance(fixed, world, until)
    world.sim[0].decided = 1 if answer == NEED_SPACE else 0
    return answer


@inlined
def is_to_decide(world: SystemState) -> bool:
    """Whether a request waits next to a free unit."""
    return world.sim[0].ready > 0 and world.sim[0].busy < world.running.shape[0]


@inlined
def _is_ready(world: SystemState, request: int) -> bool:
    sim, place = world.sim[0], find(world, request)
    return place < sim.head + sim.ready and world.ready[place] == request
