"""Slurm's reasons of a pending link, and how often a change of its job is tried. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.job import JobState, is_failed_launch

if TYPE_CHECKING:
    from mirage.domain.job import Job, JobChange, Seconds

_HELD_BY_ADMIN, _HELD_BY_OWNER = "JobHeldAdmin", "JobHeldUser"
_LIMIT = re.compile("Assoc|QOS")
_BLOCKED_TRIES = 5
"""Over a quarter of an hour, by the pauses below; Slurm blocks a sound job for some seconds."""
_FIRST_PAUSE: Seconds = 60
_LONGEST_PAUSE: Seconds = 900


@dataclass(frozen=True, slots=True)
class Attempt:
    """A change that Slurm was asked for, which no snapshot shows yet."""

    change: JobChange
    count: int
    next_try: Seconds
    blocked: bool = False
    """Whether Slurm blocked the change."""
    problem: str = ""
    """Why the request failed; empty: it did not."""

    def waits(self, now: Seconds) -> bool:
        """Whether it is too early for the next try; one beyond the longest pause is of a clock since set back."""
        return now < self.next_try <= now + _LONGEST_PAUSE

    @property
    def hopeless(self) -> bool:
        """Whether Slurm has blocked the job for so long that it will not be changed any more."""
        return self.blocked and self.count >= _BLOCKED_TRIES


def attempt(change: JobChange, earlier: Attempt | None, now: Seconds) -> Attempt:
    """The attempt at ``now``: the same change is tried after longer and longer pauses."""
    count = earlier.count + 1 if earlier is not None and earlier.change == change else 1
    return Attempt(change, count, now + min(_FIRST_PAUSE << min(count - 1, 8), _LONGEST_PAUSE))


def held_by_admin(job: Job) -> bool:
    """Whether an administrator holds the job: its owner cannot release it."""
    return job.reason == _HELD_BY_ADMIN


def has_nodes(job: Job) -> bool:
    """Whether the job of a waiting link is pending no more: its nodes boot, and nothing of it can be changed."""
    return job.state in (JobState.RUNNING, JobState.SUSPENDED)


def held_by_slurm(job: Job) -> bool:
    """Whether the hold is Slurm's own: a node could not start the job, and its owner may release it."""
    return job.held and is_failed_launch(job.reason)


def resting(reason: str, because: str, job: Job | None) -> str:
    """The sentence about a waiting link that Mirage does not hold; a hold by its owner is the only reason then."""
    if job is not None and job.reason == _HELD_BY_OWNER:
        return f"{reason}: held by its owner; release it with `scontrol release {job.job_id}`"
    return with_reason(f"{reason}: {because}" if because else reason, job)


def suspended(job: Job | None) -> str:
    """The sentence about a running link that Slurm has suspended; empty where it has not."""
    if job is None or job.state is not JobState.SUSPENDED:
        return ""
    return f"job {job.job_id} is suspended; resume it with `scontrol resume {job.job_id}`"


def with_reason(text: str, job: Job | None) -> str:
    """Return the text about a pending job, with Slurm's reason if it has one."""
    if job is None or not job.reason:
        return text
    if job.held and job.reason not in (_HELD_BY_ADMIN, _HELD_BY_OWNER) and not held_by_slurm(job):
        return f"{text}: {job.reason}: held by Slurm; release it with `scontrol release {job.job_id}`"
    who = ", held by an administrator" if held_by_admin(job) else ""
    if limit := _LIMIT.match(job.reason):
        whose = "QOS" if limit[0] == "QOS" else "account"
        who = f", a limit of the {whose}; see `sacctmgr show {limit[0].lower()}`"
    return f"{text}: {job.reason}{who}"
