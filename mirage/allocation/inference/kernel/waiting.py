"""The ready requests: a window of an array, ascending by number, with room at both ends.

Who leaves or comes near an end of the window moves only those between it and that end: mostly it is the oldest
who begin, and come back with their next piece, so that a long queue costs no more than a short one.
"""

from __future__ import annotations

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import World


@inlined
def is_tight(world: World, coming: int) -> bool:
    """Whether there might not be room enough for so many more."""
    return 2 * (world.sim[0].ready + coming) > world.ready.shape[0]


@inlined
def find(world: World, request: int) -> int:
    """Where the request stands, or would: a place in ``World.ready``."""
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
def enter(world: World, request: int) -> None:
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
def leave(world: World, request: int) -> None:
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
def _centre(world: World) -> None:
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
