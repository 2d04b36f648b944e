"""Whole runs by constants: compiled as a whole, so several run in parallel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirage.allocation.inference.relmas.policies import parameters_of
from mirage.allocation.inference.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirage.allocation.inference.outcome import SystemFigures
    from mirage.allocation.inference.relmas.artifact import Matching
    from mirage.allocation.inference.workload.stage import Stage

    Float64 = NDArray[np.float64]


class ByConstants(NamedTuple):
    """What to run."""

    stage: Stage
    matching: Matching
    constants: Float64
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
    system.follow(Scores.of_coming(played.constants), parameters_of(played.matching), np.inf)
    return system.outcome().figures
