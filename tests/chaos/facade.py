"""The small slurmctld as Slurm's commands see it, and jobs of others under numbers that it gave again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chaos.slurmctld import PARTITION

from mirage.domain.job import Job, JobId, JobState

if TYPE_CHECKING:
    from chaos.slurmctld import Slurmctld


@dataclass
class Slurm:
    """The controller as ``fake_slurm.answers`` wants to see it."""

    simulation: Slurmctld
    min_job_age: int = 300
    canceller: str = " by 1001"
    accounting: bool = True
    comments: dict[int, str] = field(default_factory=dict)
    batches: dict[JobId, object] = field(default_factory=dict)
    told: dict[tuple[str, str], str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    runs: dict[str, object] = field(default_factory=dict)
    touched: list[JobId] = field(default_factory=list)
    """Jobs of ``given_again`` that were changed, signalled or cancelled."""
    _others: dict[JobId, Job] = field(default_factory=dict)

    def give_again(self, job_id: JobId, runtime: int) -> None:
        """The controller forgets a job, and the next one of its owner gets the number; it ends well."""
        self.simulation.forget(job_id)
        now, user = self.simulation.now, self.simulation.last(job_id).user
        times = {"submit": now, "start": now, "end": now + runtime, "node_list": "elsewhere"}
        self._others[job_id] = Job(job_id, "own", user, PARTITION, 1, runtime, JobState.RUNNING, **times)

    @property
    def given_again(self) -> dict[JobId, Job]:
        """Such jobs by their job IDs, on separate nodes."""
        now = self.simulation.now
        return {
            job_id: job if now < job.end else replace(job, state=JobState.COMPLETED)
            for job_id, job in self._others.items()
        }

    @property
    def held_by_admin(self) -> set[int]:
        return self.simulation.held_by_admin

    def accounted(self) -> list[Job]:
        return [*self.simulation.accounted(), *self.given_again.values()]

    def state_word(self, job: Job) -> str:
        return "COMPLETING" if self.simulation.completing(job) else job.state.name
