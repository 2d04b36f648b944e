"""Slurm's estimated start of a hypothetical job, from its backfill plan, corrected by past errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import WaitForecast, Wants
from mirage.domain.job import ABSENT
from mirage.predictors.past_predictions import KNEE, WANTED, Experience, censored_quantiles, scaled, unscaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation, PlannedStart
    from mirage.domain.job import Seconds
    from mirage.predictors.past_predictions import ClassExperience

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

_AGED = 60
"""Age of a plan, in seconds, from which it is reported."""

TRUST = 5
"""Prior weight of the plan: it counts as this number of jobs that started as planned."""


class SlurmPlan:
    """``sbatch --test-only`` at every decision, corrected by the errors of earlier plans for the class.

    The plan uses time limits, which jobs seldom use up, so it is mostly an upper bound. Later jobs with a higher
    priority can also make it too early. Corrections are ratios of waits, or differences of short ones
    (``conformal.scaled``).
    """

    wants = Wants(plan=True) | WANTED

    name = "slurm"

    def __init__(self) -> None:
        self._experience = Experience()

    def predict(self, observation: Observation) -> WaitForecast:
        """Return the corrected plan, or without past errors the plan. Raises ``ValueError`` without a plan."""
        plan = observation.planned_start
        if not plan.is_known:
            raise ValueError(str(plan.status))
        now = observation.time
        planned = np.array([max(plan.start - now, 0)], dtype=np.float64)
        experience = self._experience.of(observation.successor)
        experience.observe(observation)
        errors = _errors(experience, observation, bool(planned[0] > KNEE))
        experience.foresee(now, planned)
        if errors is None:
            return WaitForecast.point(now + float(planned[0]), _basis(plan, now))
        starts = now + unscaled(scaled(planned) + errors)
        return WaitForecast(LEVELS, tuple(starts.tolist()), _basis(plan, now))


def _basis(plan: PlannedStart, now: Seconds) -> str:
    age = now - plan.asked_at if plan.asked_at != ABSENT else 0
    return f"Slurm's plan of {age} s ago" if age >= _AGED else "Slurm's plan of now"


def _errors(experience: ClassExperience, observation: Observation, waits: bool) -> NDArray[np.float64] | None:
    """Return errors of planned waits at ``LEVELS``, on the scale of ``scaled``; ``None``: unknown.

    Only plans of the same kind count, with a wait or without: a job that starts immediately, as planned, says
    nothing about plans of half a day.
    """
    found = experience.outcomes(observation)
    planned = np.array([float(plan[0]) for plan in experience.foreseen])[found.foreseen]
    alike = (planned > KNEE) == waits
    wait, still, planned = found.wait[alike], found.waits_still[alike], planned[alike]
    if still.all():
        return None
    errors = np.concatenate([np.zeros(TRUST), scaled(wait) - scaled(planned)])
    exceeds = np.concatenate([np.zeros(TRUST, dtype=np.bool_), still])
    known = censored_quantiles(errors, exceeds, LEVELS)
    # Levels that no job has reached yet are at least as late as the waits so far.
    least: NDArray[np.float64] = np.where(np.isnan(known), np.quantile(errors, LEVELS), known)
    return np.maximum.accumulate(least)
