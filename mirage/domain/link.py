"""Links: the Slurm jobs that carry a chain, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirage.domain.job import ABSENT, JobId, JobState, Seconds
from mirage.domain.outcome import Alternative  # noqa: TC001 (pydantic reads it)

NO_JOB = JobId(0)
"""Stands for a job id that the cluster has not given yet."""


class LinkState(StrEnum):
    """State of a link; it only moves on, except that a requeued job becomes pending again."""

    PLANNED = "planned"
    """Intent stored; the job may or may not have reached the cluster."""
    SUBMITTED = "submitted"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """The cluster no longer knows the job and its end was not seen."""


_WAITING = (LinkState.PLANNED, LinkState.SUBMITTED, LinkState.PENDING)
_FINAL = (LinkState.ENDED, LinkState.LOST)


@dataclass(frozen=True, slots=True)
class Link:
    """One Slurm job of a chain. Times not known are ``ABSENT``."""

    index: int  # from 1; a retry is a new link: tags are never used twice
    tag: str
    planned: Seconds
    state: LinkState = LinkState.PLANNED
    job_id: JobId = NO_JOB
    submit: Seconds = ABSENT
    start: Seconds = ABSENT
    end: Seconds = ABSENT  # running: when its limit ends it
    limit: Seconds = ABSENT
    """The job's own time limit as Slurm reported it last; it may differ from the one requested, and change."""
    limit_end: Seconds = ABSENT  # when that limit ends it, or would have
    warned_until: Seconds = ABSENT
    """Where the limit was raised after Slurm had warned of it: when the former limit would have ended the job."""
    warned_from: Seconds = ABSENT  # with it: when Slurm can have warned of a former limit at the earliest
    job_state: JobState = JobState.PENDING
    exit_code: int = 0
    reason: str = ""
    """The sentence that decided its submission."""
    unpinned: bool = False  # submitted without a hold: there is nothing to release
    telling: Seconds = ABSENT  # since when it may have the signal to exit: whether that arrived is unknown
    retired: Seconds = ABSENT  # when it got the signal to exit; a later end is no failure
    lost: tuple[Seconds, ...] = ()  # its submissions that the backend did not survive
    requeued: bool = False  # its run ended as its job went back to the queue
    looks: bool = False
    """Before its script it asks Slurm for the link before, and waits until that one is over."""
    waited: bool = False
    """The link ended while it waited for that: its script has not run."""
    suspended: Seconds = ABSENT  # running: since when Slurm has it suspended, as a snapshot first showed
    resumed: Seconds = ABSENT  # when the service last continued, having stood still by such a suspension
    stood: Seconds = 0  # suspended for, before that, while no other link of the chain ran
    missed: Seconds = ABSENT  # when a snapshot first lacked it after it was planned
    job_submit: Seconds = ABSENT
    """Slurm's submit time of its job, as a snapshot showed it last: another job with the same ID has another."""
    alternative: Alternative | None = (
        None  # its wait, had it been submitted at its predecessor's end, as predicted
    )

    @property
    def waiting(self) -> bool:
        """Submitted, or about to be, not yet running and still needed."""
        return self.state in _WAITING and not self.is_retired

    @property
    def is_retired(self) -> bool:
        """Whether it got the signal to exit."""
        return self.retired != ABSENT

    @property
    def running(self) -> bool:
        """Whether the job runs; false while it is suspended."""
        return self.state is LinkState.RUNNING

    @property
    def final(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.state in _FINAL

    @property
    def started(self) -> bool:
        """Whether the job has ever started."""
        return self.start != ABSENT

    @property
    def worked(self) -> bool:
        """Whether its script has run, or runs unless it waits first."""
        return self.started and not self.waited

    @property
    def end_known(self) -> bool:
        """Whether ``end`` is exact; of a lost link it is only a bound, unless its job was requeued."""
        return self.state is not LinkState.LOST or self.requeued
