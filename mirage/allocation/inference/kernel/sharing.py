"""How fast pieces run next to each other: the shared bandwidth, set again whenever a piece begins or ends.

Piece i, alone on its unit, takes t_i seconds and moves D_i bytes; it wants w_i = D_i / t_i bytes a second. While
the sum R of what is wanted is at most the bandwidth B, all users runs as if alone. Beyond it, by the rule:

PROPORTIONAL is MAGMA's (Kao & Krishna, "MAGMA: An optimization framework for mapping multiple DNNs on multiple
accelerator cores", HPCA 2022; ``post_process`` of its public code): each is given w_i B / R, and as its D_i
bytes are then moved in t_i R / B, all users runs slower by R / B. So does MOHaM (Das, Russo & Palesi, IEEE
Transactions on Computers 73(8), 2024; ``src/moham.cc``). Its known fault: a piece that computes for long and
asks for little is slowed as much as one that only moves data, as if it had asked for too much.

ROOFLINE fixes that. A piece computes and moves data at once (double buffering), so with m_i bytes a second it
takes max(c_i, D_i / m_i), c_i its seconds of computing. The table's t_i is that for the most that its unit can
draw: either t_i = c_i, or D_i / t_i is that most. In both cases more than w_i is of no use, and with less it
progresses at m_i / D_i of itself a second: at min(1 / t_i, m_i / D_i). B is divided max-min fairly: nobody is
given more than it wants, and what those of little want leave is divided equally among the others. Who wants no
more than an equal share is not slowed at all; those who are slowed are slowed because of their own want. The sum
of what is given is min(R, B) by both rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, NOT_SHARED, PROPORTIONAL, SystemState, SystemTables

if TYPE_CHECKING:
    import numpy as np

    from mirage.allocation.inference.kernel.layout import Look


@inlined
def want(look: Look, piece: int, kind: int) -> float:
    """Bytes a second of a piece on a kind of unit."""
    return look.dram_bytes[piece, kind] / look.seconds[piece, kind]


@inlined
def wanted_by_all(drawn: np.ndarray) -> float:
    """Bytes a second of all that is on units; ``drawn`` (U,): by each."""
    wanted = 0.0
    for unit in range(drawn.shape[0]):
        wanted += drawn[unit]
    return wanted


@compiled
def share(fixed: SystemTables, world: SystemState) -> None:
    """Set every piece's rate and end by who runs now."""
    if fixed.config[0].sharing == NOT_SHARED:
        return
    wanted = wanted_by_all(world.drawn)
    if wanted <= fixed.config[0].bandwidth:
        _run(world, 1.0, INFINITY)
    elif fixed.config[0].sharing == PROPORTIONAL:
        _run(world, fixed.config[0].bandwidth / wanted, INFINITY)
    else:
        _run(world, 1.0, _level(world, fixed.config[0].bandwidth))


@inlined
def _level(world: SystemState, bandwidth: float) -> float:
    """The most that anybody is given: what is left by those who want less, divided equally among the others.

    Rises in each round, at most one for each unit, until nobody more is satisfied by it.
    """
    level = -1.0
    while True:
        left, unsatisfied = bandwidth, 0
        for unit in range(world.running.shape[0]):
            if world.running[unit] >= 0:
                if world.drawn[unit] <= level:
                    left -= world.drawn[unit]
                else:
                    unsatisfied += 1
        raised = left / unsatisfied if unsatisfied > 0 else level
        if raised <= level:
            return level
        level = raised


@inlined
def _run(world: SystemState, factor: float, level: float) -> None:
    """All users at this factor of its own rate, and with at most ``level`` bytes a second."""
    for unit in range(world.running.shape[0]):
        if world.running[unit] < 0:
            continue
        state, drawn = world.units[unit], world.drawn[unit]
        slowed = factor if drawn <= level else level / drawn
        state.share = drawn * slowed
        if state.alone * slowed != state.rate:
            _change(world, unit, state.alone * slowed)


@inlined
def _change(world: SystemState, unit: int, rate: float) -> None:
    """From now on at another rate. A piece that waits for its decision has not begun: ``since`` is to come."""
    state, now = world.units[unit], world.sim[0].now
    if now > state.since:
        state.left = max(state.left - (now - state.since) * state.rate, 0.0)
        state.since = now
    state.rate = rate
    world.free_at[unit] = state.since + state.left / rate
