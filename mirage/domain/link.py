"""Links: the Slurm jobs that carry a chain, one after the other, and which job is a link's. Pure.

A job ID alone does not say which job is a link's, since Slurm may give the number again: a controller that lost
its state counts from the beginning, and ``MaxJobId`` makes every controller do so once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, JobId, JobState, Seconds, is_job_id
from mirage.domain.objective import Alternative  # noqa: TC001 (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job

_TAG = re.compile(r"(mirage:[A-Za-z0-9._-]+):([0-9]+)", re.ASCII)
_CLOCKS_APART: Seconds = 2 * 3_600
"""Maximum lead of the sender's clock over Slurm's."""
_KEPT_OF_NAME = 60
"""Characters of a job name that the accounting's database keeps, whatever their size in bytes."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The known properties of a link's job; an empty or ``ABSENT`` one is not known and excludes nothing."""

    tag: str
    owner: str = ""
    name: str = ""
    """The job's name as it was asked for."""
    partition: str = ""
    """Partition, or Slurm's list of them, as it was asked for."""
    submit: Seconds = ABSENT
    """Slurm's submit time of the job, as a snapshot has shown it."""
    sent: Seconds = ABSENT
    """When it was sent, by the daemon's clock: where ``submit`` is not known, no older job is the link's."""


NO_IDENTITIES: Mapping[str, LinkIdentity] = MappingProxyType({})
"""No identity is known of any link beyond its tag."""


def is_tag(comment: str) -> bool:
    """Whether a comment is the tag of some link."""
    return comment.startswith("mirage:") and _TAG.fullmatch(comment) is not None


def is_link(job: Job, link: LinkIdentity) -> bool:
    """Whether a job with the ID of a link is the link's.

    A tag decides where the comment is one. Else the comment was edited, or accounting does not keep comments: then
    the submit time decides. A requeue sets a new submit time, so a later one is the link's, too, where name
    and partition are those of the link.
    """
    if link.owner and job.user != link.owner and not is_nameless(job.user):
        return False
    if is_tag(job.tag):
        return job.tag == link.tag or is_mark_of(job.tag, link.tag)
    if link.submit != ABSENT and job.submit == link.submit:
        return True
    return not _older(job, link) and _same_request(job, link)


def is_nameless(user: str) -> bool:
    """Whether this is what Slurm shows for a user whose name it could not find out just now.

    Its commands ask the user database of the machine for the name of a UID: where that does not answer they show
    ``nobody``, or the number. It says nothing about whose the job is.
    """
    return user in ("", "nobody") or user.isdecimal()


def is_mark_of(tag: str, link_tag: str) -> bool:
    """Whether a job with ``tag`` may be that of the link ``link_tag``: a requeued job bears an earlier tag."""
    found, of_link = _TAG.fullmatch(tag), _TAG.fullmatch(link_tag)
    if found is None or of_link is None or found[1] != of_link[1]:
        return False
    return (len(found[2]), found[2]) <= (len(of_link[2]), of_link[2])


def _older(job: Job, link: LinkIdentity) -> bool:
    first = link.submit
    if first == ABSENT and link.sent != ABSENT:
        first = link.sent - _CLOCKS_APART
    return job.submit != ABSENT and job.submit < first


def _same_request(job: Job, link: LinkIdentity) -> bool:
    if link.name and job.name[:_KEPT_OF_NAME] != link.name[:_KEPT_OF_NAME]:
        return False
    return not link.partition or bool({*job.partition.split(",")} & {*link.partition.split(",")})


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
    withdrawn: bool = False  # retired as it waited, by a change of the chain; one that starts all the same is not
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
        """Whether its script has run, or runs unless it waits first; not where its node could not start it."""
        return self.started and not self.waited and self.job_state is not JobState.BOOT_FAIL

    @property
    def end_known(self) -> bool:
        """Whether ``end`` is exact; of a lost link it is only a bound, unless its job was requeued."""
        return self.state is not LinkState.LOST or self.requeued


def without_impossible_ids(record: ChainRecord) -> ChainRecord:
    """The record; a link with an impossible ID counts as sent without an answer, one that is over as lost.

    There is never more than one waiting link: where another one waits, such a link is lost, too.
    """
    wrong = [link for link in record.links if link.job_id != NO_JOB and not is_job_id(link.job_id)]
    for link in reversed(wrong):
        lost = replace(link, state=LinkState.LOST, job_id=NO_JOB)
        record = record.with_link(lost)
        if not link.final and not link.is_retired and record.waiting is None:
            record = record.with_link(Link(link.index, link.tag, link.planned, reason=link.reason))
    return record
