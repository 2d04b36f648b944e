"""The agenda: a binary heap of what is due, ordered by (time, kind, order of entry)."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import World


@compiled
def _before(agenda: np.ndarray, a: int, b: int) -> bool:
    if agenda[a].time != agenda[b].time:
        return agenda[a].time < agenda[b].time
    if agenda[a].kind != agenda[b].kind:
        return agenda[a].kind < agenda[b].kind
    return agenda[a].sequence < agenda[b].sequence


@compiled
def _swap(agenda: np.ndarray, a: int, b: int) -> None:
    x, y = agenda[a], agenda[b]
    time, kind, sequence, slot, generation = x.time, x.kind, x.sequence, x.slot, x.generation
    x.time, x.kind, x.sequence, x.slot, x.generation = y.time, y.kind, y.sequence, y.slot, y.generation
    y.time, y.kind, y.sequence, y.slot, y.generation = time, kind, sequence, slot, generation


@compiled
def schedule(world: World, time: int, kind: int, slot: int) -> None:
    """Enter an event of the job in ``slot``; it is void once the slot holds another job."""
    sim, agenda = world.sim[0], world.agenda
    i = sim.agenda
    sim.agenda = i + 1
    sim.sequence += 1
    entry = agenda[i]
    entry.time, entry.kind, entry.sequence = time, kind, sim.sequence
    entry.slot, entry.generation = slot, world.jobs[slot].generation
    while i > 0:
        up = (i - 1) >> 1
        if not _before(agenda, i, up):
            break
        _swap(agenda, i, up)
        i = up


@compiled
def drop_first(world: World) -> None:
    """Take the earliest entry off the agenda."""
    sim, agenda = world.sim[0], world.agenda
    n = sim.agenda - 1
    sim.agenda = n
    if n == 0:
        return
    _swap(agenda, 0, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(agenda, child + 1, child):
            child += 1
        if not _before(agenda, child, i):
            break
        _swap(agenda, i, child)
        i = child
