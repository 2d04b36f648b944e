"""What surrounds DDPG: constants found by search, their imitation by an actor, and evolution of the actor.

A request's priority, hold and caution (``kernel.scored``) by its model alone are found by CMA-ES (Hansen &
Ostermeier, Evolutionary Computation 9(2), 2001; the library ``cmaes``). A whole run by constants is compiled, so
hundreds of them take the time of one run with an agent. Actors imitate the constants before they explore, on
observations of runs by them (behaviour cloning).

Evolution strategies on the actor's last layers (Salimans et al., 2017) refine DDPG's result, or it is kept.
Pairs of equal systems run for some periods, one with a disturbance of the last layers, one with its opposite.
The difference of their gains shows how good the direction is, independent of the errors of a critic.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from cmaes import CMA

from mirage.allocation.inference.relmas import parameters_of
from mirage.allocation.inference.scores import RequestScores
from mirage.training.relmas.ddpg import LIMITS, Shift, actions_of, seen_of, square
from mirage.training.relmas.rollouts import disturbed, drawn_shift

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from mirage.allocation.inference.outcome import SystemFigures
    from mirage.allocation.inference.relmas import Matching, RelmasObservation
    from mirage.allocation.inference.workload.stage import PreparedScenario
    from mirage.training.relmas.ddpg import Actor
    from mirage.training.relmas.rollouts import PeriodRollout

if TYPE_CHECKING:
    Example = tuple[RelmasObservation, NDArray[np.float64]]

BATCH, RATE = 32, 2e-3


def examples_of(bouts: Sequence[PeriodRollout], periods: int) -> list[Example]:
    """Observations of runs by constants, and the scores of the constants."""
    with ThreadPoolExecutor() as pool:
        shown = pool.map(lambda bout: _shown(bout, periods), bouts)
        return [(sight, told) for each in shown for sight, told in each if len(sight.order)]


def _shown(bout: PeriodRollout, periods: int) -> list[Example]:
    found: list[Example] = []
    for _ in range(periods):
        if bout.over:
            break
        sight = bout.sight()
        told = bout.told(sight)
        found.append((sight, told))
        bout.step(sight.scores(told))
    return found


def imitate(actor: Actor, examples: Sequence[Example], steps: int, rng: np.random.Generator) -> float:
    """Regression with a learning rate that falls to 0; returns the mean squared error at the end."""
    optimiser = torch.optim.Adam(actor.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    missed, last = 0.0, max(steps // 10, 1)
    for step in range(steps):
        drawn = [examples[row] for row in rng.integers(len(examples), size=BATCH)]
        seen = seen_of([sight for sight, _ in drawn])
        wanted = actions_of([told for _, told in drawn], seen.mask.shape[1])
        loss = square(seen, actor(*seen) - wanted)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        falling.step()
        missed += float(loss.detach()) / last if step >= steps - last else 0.0
    return missed


class Evolution:
    """The last layers of an actor, with their optimiser."""

    def __init__(self, actor: Actor, spread: float, rate: float) -> None:
        self._actor, self._spread = actor, spread
        self._layers = (actor.request, actor.affinity)
        parameters = [part for layer in self._layers for part in (layer.weight, layer.bias)]
        self._optimiser = torch.optim.Adam(parameters, lr=rate)

    def improve(self, bouts: Sequence[PeriodRollout], stretch: int, rng: torch.Generator) -> float:
        """Run each system next to its opposite, and move to the better side; returns how much they differ."""
        one = drawn_shift(self._actor, len(bouts), self._spread, rng)
        pairs = [*bouts, *(bout.copy() for bout in bouts)]
        shift = Shift(*(torch.cat([part, -part]) for part in one))
        gained = torch.zeros(len(pairs))
        for _ in range(stretch):
            sights = [bout.sight() for bout in pairs]
            for row, (bout, action) in enumerate(
                zip(pairs, disturbed(self._actor, sights, shift, 0.0, rng), strict=True)
            ):
                if not bout.over:
                    gained[row] += bout.step(sights[row].scores(action))
        better = gained[: len(bouts)] - gained[len(bouts) :]
        self._step(one, better / (better.std() + 1e-6))
        return float(better.abs().mean())

    def _step(self, shift: Shift, better: Tensor) -> None:
        self._optimiser.zero_grad()
        for layer, drawn in zip(self._layers, shift, strict=True):
            towards = (
                torch.einsum("b,b...->...", better, drawn).reshape(-1, drawn.shape[-1])
                / len(better)
                / self._spread
            )
            layer.weight.grad, layer.bias.grad = -towards[:, :-1], -towards[:, -1]
        self._optimiser.step()


if TYPE_CHECKING:
    Floats = NDArray[np.float64]


class ByConstants(NamedTuple):
    """What to run."""

    stage: PreparedScenario
    matching: Matching
    constants: Floats
    """[M, KINDS + K] Scores of the requests of each model."""


def worths_of(
    played: Sequence[ByConstants], seeds: range, figure: Callable[[Sequence[SystemFigures]], float]
) -> list[float]:
    """``figure`` of each, from a workload of each seed."""
    with ThreadPoolExecutor() as pool:
        runs = [[pool.submit(_figures, each, seed) for seed in seeds] for each in played]
        return [figure([run.result() for run in each]) for each in runs]


def _figures(played: ByConstants, seed: int) -> SystemFigures:
    system = played.stage.simulated(seed)
    system.follow(RequestScores.of_coming(played.constants), parameters_of(played.matching), np.inf)
    return system.outcome().figures


if TYPE_CHECKING:
    Float64 = NDArray[np.float64]
    Worths = Callable[[Sequence[Float64], range], list[float]]

GROUNDS = (0.0, 0.3, 0.55)
"""Initial holds of a search, as parts of their maximum."""
STEP, STALE = 0.15, 0.004
"""The first step, as a part of the maximum of constants; the remaining gain below which no search starts."""
CHECKED, PLAYED = 12, 4
"""Workloads for comparing beginnings and ends; workloads of one generation."""


def search(
    worths: Worths, used: NDArray[np.intp], shape: tuple[int, int], generations: int, first: int
) -> Float64:
    """Search constants by their mean figure on workloads of seeds from ``first`` on.

    ``shape``: (M, KINDS + K), of which the columns before the affinities are filled for the models ``used``: no
    others are requested. Zeros where the search finds nothing better.
    """

    def spread(found: Float64) -> Float64:
        whole = np.zeros(shape)
        whole[used, : len(LIMITS)] = found.reshape(len(used), len(LIMITS)) * LIMITS
        return whole

    checked = range(first, first + CHECKED)
    grounds = [np.tile([0.0, hold, 0.0], len(used)) for hold in GROUNDS]
    values = worths([spread(ground) for ground in grounds], checked)
    if values[0] > 1.0 - STALE:
        return spread(grounds[0])
    best = grounds[int(np.argmax(values))]
    found = _evolve(
        lambda tried, seeds: worths([spread(x) for x in tried], seeds), best, generations, checked.stop
    )
    # Where little can be gained the search goes too far: half of the way may be better.
    ends = [(best + found) / 2.0, found]
    values += worths([spread(end) for end in ends], checked)
    return spread([*grounds, *ends][int(np.argmax(values))])


def _evolve(worths: Worths, mean: Float64, generations: int, first: int) -> Float64:
    """Mean of the last generation. Each generation has other workloads, to avoid overfitting."""
    strategy = CMA(mean, STEP, bounds=np.tile([-1.0, 1.0], (len(mean), 1)), seed=first)
    for number in range(generations):
        seeds = range(first + number * PLAYED, first + (number + 1) * PLAYED)
        tried = [strategy.ask() for _ in range(strategy.population_size)]
        strategy.tell([(x, -value) for x, value in zip(tried, worths(tried, seeds), strict=True)])
    found: Float64 = strategy.mean
    return found
