"""What a policy sees, gathered from the state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel import lifecycle
from mirage.allocation.ddl.kernel.compile import compiled
from mirage.allocation.ddl.kernel.layout import RUNNING, Fixed, Site, World


class Sight(NamedTuple):
    """Where what is seen is gathered."""

    candidates: np.ndarray  # i4 (tasks,)
    held_from: np.ndarray  # i4 (tasks + 1,)
    held: np.ndarray  # i4


@compiled
def refresh(fixed: Fixed, site: Site, world: World, sight: Sight) -> int:
    """Bring the columns up to now, and gather devices held and, with preemption, candidates: how many."""
    sim = world.sim[0]
    for i in range(sim.running):
        lifecycle.count_service(fixed, world, world.agenda[i])
    count = 0
    for task in range(world.states.shape[0]):
        sight.held_from[task] = count
        if world.states[task].status == RUNNING:
            first = fixed.tasks[task].first_held
            for k in range(site.needs[task].devices):
                sight.held[count] = world.held[first + k]
                count += 1
    sight.held_from[world.states.shape[0]] = count
    return _gather(fixed, world, sight) if fixed.config[0].preempt == 1 else 0


@compiled
def _gather(fixed: Fixed, world: World, sight: Sight) -> int:
    """The pending, and the running that can be preempted, in order of submission."""
    sim, count = world.sim[0], 0
    for i in range(sim.pending):
        sight.candidates[count] = world.pending[i]
        count += 1
    for i in range(sim.running):
        task = world.agenda[i]
        if fixed.tasks[task].restart >= 0.0:
            k = count
            while k > 0 and fixed.tasks[sight.candidates[k - 1]].rank > fixed.tasks[task].rank:
                sight.candidates[k] = sight.candidates[k - 1]
                k -= 1
            sight.candidates[k] = task
            count += 1
    return count
