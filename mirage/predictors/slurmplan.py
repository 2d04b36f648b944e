"""Slurm's own estimate: the start that the backfill plan gives to a hypothetical job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class SlurmPlan:
    """``sbatch --test-only`` asked at every decision. Blind to jobs that arrive later or end early."""

    wants = Wants(plan=True)

    name = "slurm"

    def predict(self, observation: Observation) -> WaitForecast:
        """The planned start. Raises ``ValueError`` where Slurm gives none."""
        if observation.planned_start == ABSENT:
            raise ValueError("Slurm gives no estimate for such a job")
        return WaitForecast.point(max(observation.planned_start, observation.time))
