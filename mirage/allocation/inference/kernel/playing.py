"""Whole runs by a compiled policy."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.deciding import decide
from mirage.allocation.inference.kernel.layout import DECIDE, UNTIL, WRONG, Fixed, World
from mirage.allocation.inference.kernel.look import Draft, Look
from mirage.allocation.inference.kernel.mainloop import advance, obey


@compiled
def play(
    fixed: Fixed, world: World, draft: Draft, code: int, parameters: np.ndarray, until: float, period: float
) -> int:
    """Run to the end or ``until``; what ``advance`` answered last, or WRONG for a choice that cannot be obeyed.

    With a period (infinity: none) it is decided anew, too, whenever nothing was for so long.
    """
    while True:
        sim = world.sim[0]
        if (
            sim.ready > 0
            and sim.busy < world.running.shape[0]
            and not _decide(fixed, world, draft, code, parameters)
        ):
            return WRONG
        answer = advance(fixed, world, min(until, sim.now + period))
        if answer != DECIDE and (answer != UNTIL or sim.now >= until):
            return answer


@inlined
def _decide(fixed: Fixed, world: World, draft: Draft, code: int, parameters: np.ndarray) -> bool:
    sim = world.sim[0]
    sim.decisions += 1
    count = decide(code, parameters, look_at(fixed, world), sim.now, sim.ready, draft)
    head = sim.head
    for i in range(count):  # rows move as requests leave: first all are looked up
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
