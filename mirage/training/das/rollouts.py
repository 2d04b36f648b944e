"""Run many simulated pools together with exploring agents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.allocation.ddl.das.choosing import Settling, with_room
from mirage.allocation.ddl.das.sight import Sight, sight_of
from mirage.training.das.agents import asked_of, waiting_of
from mirage.training.das.processes import log_multinormal, log_normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.ddl.outcome import Outcome
    from mirage.allocation.ddl.simulation import SimulatedPool
    from mirage.training.das.agents import Agents

Float32 = NDArray[np.float32]

MOST = 24
"""Tasks that the placement agent considers at one time while it explores; without exploration all."""
NEAR = 3.0
"""Standard deviations beyond the last task considered within which another's score could have mattered."""


@dataclass(slots=True)
class Step:
    """One decision of one pool: observation, drawn actions and their likelihood."""

    now: float
    sight: Sight
    scores: Float32
    """[waiting]"""
    score_density: Float32
    mattered: Float32
    """[waiting] 1 where the score could have changed the result."""
    chosen: NDArray[np.int64]
    """[K] Rows of the observation that the placement agent considered, in their order."""
    affinity: Float32
    """[K, N]"""
    affinity_density: Float32
    patience: Float32
    patience_density: Float32
    started: NDArray[np.int64]
    """Number of tasks."""


@dataclass(slots=True)
class Episode:
    """Decisions and results of one pool."""

    outcome: Outcome
    steps: list[Step] = field(default_factory=list)


def play(pools: Sequence[SimulatedPool], agents: Agents, rng: torch.Generator | None) -> list[Episode]:
    """Run all pools to their ends. Without ``rng`` the agents take their best actions, and no steps are kept."""
    kept: list[list[Step]] = [[] for _ in pools]
    going = [number for number, pool in enumerate(pools) if _to_decision(pool)]
    while going:
        sights = [_borrowed_no_more(sight_of(pools[number].view())) for number in going]
        with torch.no_grad():
            steps = _decide(agents, sights, rng)
        for number, step in zip(going, steps, strict=True):
            _obey(pools[number], step)
            if rng is not None:
                kept[number].append(step)
        going = [number for number in going if _to_decision(pools[number])]
    return [Episode(pool.outcome(), steps) for pool, steps in zip(pools, kept, strict=True)]


def _to_decision(pool: SimulatedPool) -> bool:
    """Continue until a task waits and a device is free; ``False`` when all is done."""
    while pool.advance():
        view = pool.view()
        if len(view.pending) and view.free.max() > 0:
            return True
    return False


def _borrowed_no_more(sight: Sight) -> Sight:
    """Copies of the view's arrays that are read later, because they change with the pool."""
    standing = sight.standing
    machines = standing.machines
    machines = machines._replace(
        free=machines.free.copy(), cpus=machines.cpus.copy(), memory_mb=machines.memory_mb.copy()
    )
    return replace(sight, standing=standing._replace(machines=machines))


def _decide(agents: Agents, sights: list[Sight], rng: torch.Generator | None) -> list[Step]:
    seen = waiting_of(sights)
    mean, spread = agents.scores(seen)
    scores = mean if rng is None else mean + spread * torch.randn(mean.shape, generator=rng)
    score_density = log_normal(scores, mean, spread)
    chosen = [
        with_room(sight, np.argsort(row[: sight.waiting], kind="stable"), sight.waiting if rng is None else MOST)
        for sight, row in zip(sights, scores.numpy(), strict=True)
    ]
    asked = asked_of(sights, chosen)
    found = agents.affinities(asked)
    calm = torch.exp(agents.placement.patience_spread)
    affinity, patience = found.mean, found.patience
    if rng is not None:
        noise = torch.randn(affinity.shape, generator=rng).unsqueeze(-1)
        affinity = affinity + (found.factor @ noise).squeeze(-1)
        patience = patience + calm * torch.randn(patience.shape, generator=rng)
    densities = log_multinormal(affinity, found.mean, found.factor), log_normal(patience, found.patience, calm)
    steps = []
    for place, (sight, rows) in enumerate(zip(sights, chosen, strict=True)):
        waiting, count = sight.waiting, len(rows)
        drawn = scores[place, :waiting].numpy()
        last = drawn[rows].max() if count == MOST else np.inf
        near = np.minimum(drawn, mean[place, :waiting].numpy()) <= last + NEAR * float(spread)
        steps.append(
            Step(
                0.0,
                sight,
                drawn,
                score_density[place, :waiting].numpy(),
                near.astype(np.float32),
                rows,
                affinity[place, :count].numpy(),
                densities[0][place, :count].numpy(),
                patience[place, :count].numpy(),
                densities[1][place, :count].numpy(),
                np.zeros(0, dtype=np.int64),
            )
        )
    return steps


def _obey(pool: SimulatedPool, step: Step) -> None:
    affinity, patience = step.affinity.astype(np.float64), step.patience.astype(np.float64)
    moves = Settling(step.sight).add(step.chosen, affinity, patience)
    for placement in moves:
        pool.start(placement)
    step.now = pool.now
    step.started = np.array([placement.task for placement in moves], dtype=np.int64)
