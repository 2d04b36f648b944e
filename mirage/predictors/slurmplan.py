"""Slurm's own estimate: the start that the backfill plan gives to a hypothetical job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class SlurmPlan:
    """``sbatch --test-only`` asked at every decision. Blind to jobs that arrive later or end early."""

    name = "slurm"
    wants_waits = 0
    wants_queue = False
    wants_plan = True

    def predict(self, observation: Observation) -> WaitForecast:
        """The planned start. Raises ``ValueError`` where Slurm gives none."""
        if observation.planned_start == ABSENT:
            raise ValueError("Slurm gives no estimate for such a job")
        return WaitForecast.point(max(observation.planned_start, observation.time))
