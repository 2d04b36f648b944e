"""Run many simulated pools together with exploring agents, and reward their decisions.

The paper rewards the tasks scheduled at t by 1 / (fee_i JCT_i), and charges alpha C_i n_i for those left, with the
demand n_i; the sum is divided by their number. C_i and the units of fee and JCT are not public. Ours:

- fee and JCT are divided by those of the task alone at reference speed without waiting: each term is at most 1;
- the charge for those left is for time: between two decisions C_i n_i is the time that task i was in the pool, by
  the mean JCT of the set of tasks, whether it waits or runs. So the charges of an episode add up to the mean JCT,
  the figure that is compared, and a task that is made slow continues costing;
- both are divided by the number of tasks in the set, which no decision changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.allocation.ddl.das.observation import DasObservation, Settling, sight_of, with_room
from mirage.training.das.agents import asked_of, log_multinormal, log_normal, waiting_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.ddl.outcome import TaskRunResult
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
    sight: DasObservation
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
class PoolEpisode:
    """Decisions and results of one pool."""

    outcome: TaskRunResult
    steps: list[Step] = field(default_factory=list)


def play(pools: Sequence[SimulatedPool], agents: Agents, rng: torch.Generator | None) -> list[PoolEpisode]:
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
    return [PoolEpisode(pool.outcome(), steps) for pool, steps in zip(pools, kept, strict=True)]


def _to_decision(pool: SimulatedPool) -> bool:
    """Continue until a task waits and a device is free; ``False`` when all is done."""
    while pool.advance():
        view = pool.view()
        if len(view.pending) and view.free.max() > 0:
            return True
    return False


def _borrowed_no_more(sight: DasObservation) -> DasObservation:
    """Copies of the view's arrays that are read later, because they change with the pool."""
    standing = sight.standing
    machines = standing.machines
    machines = machines._replace(
        free=machines.free.copy(), cpus=machines.cpus.copy(), memory_mb=machines.memory_mb.copy()
    )
    return replace(sight, standing=standing._replace(machines=machines))


def _decide(agents: Agents, sights: list[DasObservation], rng: torch.Generator | None) -> list[Step]:
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


Float64 = NDArray[np.float64]

BONUS = 0.1
"""Weight of the term of scheduled tasks next to the charge for time, alpha = 1."""


def rewards(episode: PoolEpisode, unit: float) -> Float64:
    """One number for each step; ``unit`` is the mean JCT (s) of the set."""
    outcome, count = episode.outcome, len(episode.outcome.tasks)
    times = np.array([*(step.now for step in episode.steps), np.inf])
    togo = time_to_go(outcome, times)
    charged = (togo[:-1] - togo[1:]) / unit
    worth = _worth(outcome)
    gained = np.array([worth[step.started].sum() for step in episode.steps])
    return np.asarray((BONUS * gained - charged) / count)


def _worth(outcome: TaskRunResult) -> Float64:
    """1 / (fee JCT) of each task, both by those of the undisturbed task."""
    tasks = outcome.tasks
    held = np.maximum(outcome.served, 1e-9) / tasks.work
    return np.asarray(tasks.work / np.maximum(outcome.jct, tasks.work) / np.maximum(held, 1.0))


def time_to_go(outcome: TaskRunResult, times: Float64) -> Float64:
    """Task-seconds in the pool from each time on, including tasks still to come."""
    begins = np.maximum(outcome.tasks.submit[:, None], np.minimum(times, outcome.end.max())[None, :])
    return np.asarray(np.maximum(outcome.end[:, None] - begins, 0.0).sum(axis=0))


def group_features(group: Sequence[PoolEpisode], unit: float) -> list[Float64]:
    """Features of each episode of a set of tasks (steps, 4), from which the critic knows the kind of set:

    the mean task-time to go of the group at that time; and how the episode stands against the group in tasks
    present, seconds left, and device-seconds left.
    """
    count = len(group[0].outcome.tasks)
    curves = [_curve(episode) for episode in group]
    features = []
    for episode, curve in zip(group, curves, strict=True):
        times = curve[:, 0]
        togo = np.mean([time_to_go(other.outcome, times) for other in group], axis=0) / unit / count
        present = np.mean([_present(other.outcome, times) for other in group], axis=0)
        off = [(_present(episode.outcome, times) - present) / 10.0]
        for column in (1, 2):
            mean = np.mean([np.interp(times, other[:, 0], other[:, column]) for other in curves], axis=0)
            off.append((curve[:, column] - mean) / unit / 10.0)
        features.append(np.stack([togo, *off], axis=1))
    return features


def _curve(episode: PoolEpisode) -> Float64:
    """(steps, 3): time, seconds and device-seconds left of tasks that are in the pool."""
    rows = []
    for step in episode.steps:
        left = np.exp(step.sight.base[:, 0])
        rows.append((step.now, left.sum(), (left * np.exp(step.sight.base[:, 1])).sum()))
    return np.array(rows)


def _present(outcome: TaskRunResult, times: Float64) -> Float64:
    here = (outcome.tasks.submit[:, None] <= times) & (outcome.end[:, None] > times)
    return np.asarray(here.sum(axis=0), dtype=np.float64)


def advantages(reward: Float64, value: Float64, smoothing: float) -> tuple[Float64, Float64]:
    """Generalised advantages (Schulman et al., ICLR 2016), undiscounted, and the targets of the critic."""
    following = np.append(value[1:], 0.0)
    surprise = reward + following - value
    found = np.zeros(len(reward))
    carried = 0.0
    for place in range(len(reward) - 1, -1, -1):
        carried = surprise[place] + smoothing * carried
        found[place] = carried
    return found, found + value
