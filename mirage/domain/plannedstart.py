"""Slurm's planned start of a job that is not submitted, or why Slurm has no plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirage.domain.job import ABSENT, Seconds


class PlanStatus(StrEnum):
    """Status of Slurm's planned start."""

    KNOWN = "known"
    BEYOND_WINDOW = "Slurm plans no start within its backfill window"
    NOT_PERMITTED = "Slurm cannot be queried for the plan as the owner"
    REJECTED = "Slurm rejects such a job"
    UNAVAILABLE = "Slurm does not answer the query for its plan"
    NOT_ASKED = "Slurm has not been queried for its plan yet"


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When Slurm would start a job that is submitted now."""

    status: PlanStatus = PlanStatus.NOT_ASKED
    start: Seconds = ABSENT
    """``ABSENT`` unless the plan is known."""
    asked_at: Seconds = ABSENT
    """When Slurm was asked; an older plan is the one for a job submitted then."""

    @classmethod
    def known(cls, start: Seconds, asked_at: Seconds = ABSENT) -> PlannedStart:
        """Return a plan that starts at ``start``, as Slurm answered at ``asked_at``."""
        return cls(PlanStatus.KNOWN, start, asked_at)

    @property
    def is_known(self) -> bool:
        """Whether Slurm has planned a start."""
        return self.status is PlanStatus.KNOWN


NO_PLAN = PlannedStart()
"""Nobody asked."""
