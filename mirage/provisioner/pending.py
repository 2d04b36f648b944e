"""Reasons that keep a link pending, until when, and how often a change of its job is tried. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.job import ABSENT, JobState, is_failed_launch
from mirage.provisioner.steering import ends_early, held_back, steerable

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Job, JobChange, Seconds
    from mirage.domain.link import Link

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
    if job.reason == "PartitionTimeLimit":
        job_limit = f"`scontrol update JobId={job.job_id} TimeLimit=...`"
        who = f", longer than the partition allows: lower it by {job_limit} and `mirage chain update -t`"
    return f"{text}: {job.reason}{who}"


class Kept(StrEnum):
    """A reason besides the queue that keeps a link pending."""

    NOTHING = ""
    OWNER = "owner"
    """Its owner holds it."""
    ADMIN = "administrator"
    """An administrator holds it."""
    PINNED = "pinned"
    """The link may run only on its predecessor's nodes, which the predecessor holds."""
    HELD = "held"
    """Mirage holds it."""
    LOW = "low-rank"
    """Mirage has given it a low rank."""
    DEPENDENT = "dependent"
    """The link may start once the links before it are over."""
    BEGIN = "begin"
    """The link has a begin time."""


_ADMIN, _BEGIN, _DEPENDENCY = "JobHeldAdmin", "BeginTime", "Dependency"
_LATE = 600
"""Seconds after the limit of its predecessor at which Slurm may plan it: ``bf_resolution`` is as coarse."""
_STEERED = {Steering.PIN: Kept.PINNED, Steering.HOLD: Kept.HELD, Steering.NICE: Kept.LOW}


def kept_by(record: ChainRecord, link: Link, job: Job | None) -> Kept:
    """The reason that keeps the waiting ``link``, which is ``job``, pending."""
    if job is None or not link.waiting or has_nodes(job):
        return Kept.NOTHING
    if job.reason == _ADMIN:
        return Kept.ADMIN
    if job.held and (record.chain.owner_holds(link.index) or record.chain.method is not Steering.HOLD):
        return Kept.OWNER
    if job.reason == _BEGIN:
        return Kept.BEGIN
    if steerable(record, link) and held_back(job, record.chain):
        return _STEERED[record.chain.method]
    alone = record.chain.one_writer and link.unpinned
    return Kept.DEPENDENT if alone and any(other.running for other in record.live) else Kept.NOTHING


def kept_until(record: ChainRecord, kept: Kept, job: Job, predecessor: Job | None) -> Seconds:
    """When what keeps ``job``, a link that waits, is to end, as far as it is known; ``ABSENT``: that is not known.

    A pinned link that is never released, and one of one writer, may start as its predecessor ends.
    """
    if kept is Kept.BEGIN:
        return job.begin
    if kept in (Kept.NOTHING, Kept.OWNER, Kept.ADMIN) or predecessor is None:
        return ABSENT
    if predecessor.state is not JobState.RUNNING or predecessor.end == ABSENT:
        return ABSENT
    to_its_end = kept is Kept.DEPENDENT or (kept is Kept.PINNED and record.chain.one_writer)
    return predecessor.end - ends_early(record) - (0 if to_its_end else record.chain.release_lead)


def expected_start(
    record: ChainRecord, link: Link, job: Job, predecessor: Job | None, *, idle: bool = True
) -> Seconds:
    """When the pending ``link`` may start: as Slurm plans it or, if Mirage knows better, when Mirage releases it.

    Slurm's plan for a pinned link is the limit of its predecessor, which may end or exit for its successor before
    that; one that is released, or waits for the end of its predecessor, starts then where enough nodes are
    ``idle``. Nothing is known of one that more than the queue keeps.
    """
    kept = kept_by(record, link, job)
    if predecessor is not None and predecessor.state is JobState.SUSPENDED and kept is not Kept.NOTHING:
        return ABSENT  # Slurm's plan is of the time before
    until = kept_until(record, kept, job, predecessor)
    if until == ABSENT or kept is Kept.LOW:
        return job.expected_start
    if kept in (Kept.PINNED, Kept.DEPENDENT) and not _is_next(job, predecessor):
        return job.expected_start
    stays = kept is Kept.BEGIN or (kept is Kept.PINNED and not _let_go(record.chain))
    return until if stays or idle else job.expected_start


def _is_next(job: Job, predecessor: Job | None) -> bool:
    """Whether nothing but its predecessor seems to keep it: no other job is ahead of it, as far as Slurm says."""
    late = predecessor is not None and job.expected_start > predecessor.end + _LATE
    return not job.held and not late and job.reason in ("", "None", "Resources", _DEPENDENCY)


def _let_go(chain: Chain) -> bool:
    """Whether its pinned links may start on other nodes before their predecessors end."""
    return not chain.one_writer and chain.release_lead > 0


def running_until(record: ChainRecord, link: Link, job: Job | None) -> Seconds:
    """When a running link is ended, by its time limit or as its grace period is over.

    ``ABSENT`` while it is suspended: its limit does not run on.
    """
    if job is not None and job.state is JobState.SUSPENDED:
        return ABSENT
    grace = link.retired + record.chain.handover.signal.lead
    return min(link.end, grace) if link.is_retired and link.end != ABSENT else link.end
