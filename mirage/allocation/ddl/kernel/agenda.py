"""The agenda: running tasks as a binary heap by their end; each knows its place in it, as ends move."""

from __future__ import annotations

from mirage.allocation.ddl.kernel.compile import compiled
from mirage.allocation.ddl.kernel.layout import World


@compiled
def add(world: World, task: int) -> None:
    """Enter a task whose end is set."""
    sim = world.sim[0]
    place = sim.running
    sim.running = place + 1
    world.agenda[place] = task
    world.states[task].place = place
    _rise(world, place)


@compiled
def drop(world: World, task: int) -> None:
    """Take a task off."""
    sim = world.sim[0]
    place, last = world.states[task].place, sim.running - 1
    sim.running = last
    if place == last:
        return
    moved = world.agenda[last]
    world.agenda[place] = moved
    world.states[moved].place = place
    _rise(world, place)
    _sink(world, world.states[moved].place)


@compiled
def renew(world: World, task: int) -> None:
    """Put a task where its changed end belongs."""
    _rise(world, world.states[task].place)
    _sink(world, world.states[task].place)


@compiled
def _before(world: World, a: int, b: int) -> bool:
    """Whether the task at place ``a`` ends before the one at ``b``; of equals the first row, to be repeatable."""
    x, y = world.agenda[a], world.agenda[b]
    ends = world.states[x].end, world.states[y].end
    return ends[0] < ends[1] or (ends[0] == ends[1] and x < y)


@compiled
def _swap(world: World, a: int, b: int) -> None:
    x, y = world.agenda[a], world.agenda[b]
    world.agenda[a], world.agenda[b] = y, x
    world.states[y].place, world.states[x].place = a, b


@compiled
def _rise(world: World, place: int) -> None:
    while place > 0:
        up = (place - 1) >> 1
        if not _before(world, place, up):
            return
        _swap(world, place, up)
        place = up


@compiled
def _sink(world: World, place: int) -> None:
    running = world.sim[0].running
    while True:
        child = 2 * place + 1
        if child >= running:
            return
        if child + 1 < running and _before(world, child + 1, child):
            child += 1
        if not _before(world, child, place):
            return
        _swap(world, child, place)
        place = child
