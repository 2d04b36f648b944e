"""What happens to a request: it comes, its pieces begin and end, it is answered."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import waiting
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import Fixed, World


@compiled
def arrive(fixed: Fixed, world: World) -> None:
    """The next request comes."""
    request = world.sim[0].arrived
    world.sim[0].arrived += 1
    world.ready_since[request] = fixed.arrival[request]
    if world.kept.shape[0] > 0:
        model = fixed.model[request]
        for column in range(world.kept.shape[1]):
            world.kept[request, column] = world.coming[model, column]
    waiting.enter(world, request)


@inlined
def can_begin(fixed: Fixed, world: World, request: int, unit: int) -> bool:
    """Whether the unit is free, and of a kind that can run the next piece."""
    return world.running[unit] < 0 and not np.isnan(fixed.seconds[world.piece[request], fixed.kind[unit]])


@compiled
def begin(fixed: Fixed, world: World, request: int, unit: int) -> None:
    """The next piece of a ready request begins, as soon as the decision has been made."""
    waiting.leave(world, request)
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
def finish(fixed: Fixed, world: World, unit: int) -> None:
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
        waiting.enter(world, request)
        return
    world.end[request] = now
    sim.ended += 1
    tenant = fixed.tenant[request]
    world.tenant_ended[tenant] += 1
    if now <= fixed.deadline[request]:
        world.tenant_kept[tenant] += 1


@inlined
def _account(fixed: Fixed, world: World, request: int, unit: int) -> None:
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
