"""Whole runs by a compiled policy, and runs to the next period by scores that are kept."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.deciding import decide
from mirage.allocation.inference.kernel.layout import DECIDE, UNTIL, WRONG, Fixed, World
from mirage.allocation.inference.kernel.look import INFINITY, Draft, Look
from mirage.allocation.inference.kernel.mainloop import advance, go_on, is_to_decide, obey
from mirage.allocation.inference.kernel.scored import decide_scored


@compiled
def play(fixed: Fixed, world: World, draft: Draft, code: int, parameters: np.ndarray, period: float) -> int:
    """Run to the end; what ``advance`` answered last, or WRONG for a choice that cannot be executed.

    With a period (infinity: none) it is decided again, too, whenever nothing was for so long.
    """
    while True:
        sim = world.sim[0]
        if sim.decided == 0 and is_to_decide(world):
            sim.decisions += 1
            count = decide(code, parameters, look_at(fixed, world), sim.now, sim.ready, draft)
            if not _obey(fixed, world, draft, count):
                return WRONG
        if sim.busy == 0 and sim.arrived == fixed.arrival.shape[0]:  # whoever waits now will wait indefinitely
            return advance(fixed, world, INFINITY)
        answer = go_on(fixed, world, sim.now + period)
        if answer not in (DECIDE, UNTIL):
            return answer


@compiled
def follow(fixed: Fixed, world: World, draft: Draft, parameters: np.ndarray, until: float) -> int:
    """Run to ``until`` by ``world.kept``; what ``advance`` answered last, or WRONG."""
    while True:
        sim = world.sim[0]
        if sim.decided == 0 and is_to_decide(world):
            count = decide_scored(parameters, world.kept, look_at(fixed, world), sim.now, sim.ready, draft)
            if not _obey(fixed, world, draft, count):
                return WRONG
        answer = go_on(fixed, world, until)
        if answer != DECIDE:
            return answer


@inlined
def _obey(fixed: Fixed, world: World, draft: Draft, count: int) -> bool:
    """Places among the ready move as requests leave: first all are looked up."""
    head = world.sim[0].head
    for i in range(count):
        draft.ready[i] = world.ready[head + draft.ready[i]]
    return obey(fixed, world, draft.ready, draft.unit, count) < 0


@inlined
def look_at(fixed: Fixed, world: World) -> Look:
    """The system now."""
    head = world.sim[0].head
    return Look(
        ready=world.ready[head : head + world.sim[0].ready],
        arrival=fixed.arrival,
        deadline=fixed.deadline,
        weight=fixed.weight,
        model=fixed.model,
        tenant=fixed.tenant,
        number=fixed.number,
        piece=world.piece,
        ready_since=world.ready_since,
        served=world.served,
        kind=fixed.kind,
        running=world.running,
        free_at=world.free_at,
        drawn=world.drawn,
        tenant_ended=world.tenant_ended,
        tenant_kept=world.tenant_kept,
        seconds=fixed.seconds,
        compute_seconds=fixed.compute_seconds,
        joules=fixed.joules,
        dram_bytes=fixed.dram_bytes,
        remaining=fixed.remaining,
        first=fixed.first,
        least=fixed.least,
        bandwidth=fixed.config[0].bandwidth,
    )
