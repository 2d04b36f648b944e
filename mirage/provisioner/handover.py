"""When a predecessor has to exit for the successor that runs at the same time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus, HandoverPolicy, Steering
from mirage.domain.job import ABSENT, NEVER, Dependency, DependencyKind, JobState
from mirage.domain.link import NO_JOB
from mirage.provisioner.decide import hours
from mirage.provisioner.pending import held_by_slurm

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.link import Link

_SIGNALS = 128
NEVER_SATISFIED = "DependencyNeverSatisfied"
"""Slurm's reason of a job whose dependency has failed."""

_EARLY_AMONG = 8
_FIRST_RUN: Seconds = 3_600


def awaited(record: ChainRecord, link: Link) -> tuple[Dependency, ...]:
    """The jobs that must be over, by Slurm's own account, before a link of one writer may start.

    The last one is among them although it has ended: its nodes may still be cleaned up, and it may still be
    requeued by any user with that right. Slurm takes a job that it does not know any more for one that is over.

    Where a predecessor's exit with 0 can only mean that the work is done, the link never starts after it, however
    late Mirage sees that end.
    """
    others = [other for other in record.links if other.index != link.index and other.job_id != NO_JOB]
    return tuple(
        end_of(record.chain, other.job_id, over=other.final)
        for other in others
        if not other.final or other is others[-1]
    )


def end_of(chain: Chain, job_id: JobId, *, over: bool) -> Dependency:
    """The dependency on a link's job, which Slurm may not know any more where it is ``over``."""
    never_after_done = chain.done_by_zero and not over
    return Dependency(DependencyKind.AFTERNOTOK if never_after_done else DependencyKind.AFTERANY, job_id)


def stuck(record: ChainRecord, job: Job | None, *, blocked: bool) -> Link | None:
    """The waiting link that Slurm will never start although the chain continues.

    A predecessor that was abandoned after a requeue may have run again meanwhile, and ended with 0. ``blocked``:
    the link is held, and Slurm does not let it be released.
    """
    link = record.waiting
    if link is None or job is None or record.over or not (blocked or job.reason == NEVER_SATISFIED):
        return None
    return link if record.live == (link,) else None


def to_release(record: ChainRecord, job: Job | None) -> bool:
    """Whether only Slurm holds the pending link's job.

    The method hold releases its links itself.
    """
    link, chain = record.waiting, record.chain
    if link is None or job is None or not held_by_slurm(job):
        return False
    if chain.owner_holds(link.index) or (chain.method is Steering.HOLD and not link.unpinned):
        return False
    return record.status is ChainStatus.ACTIVE and (record.live == (link,) or not chain.one_writer)


def before(record: ChainRecord, link: Link) -> Link | None:
    """The link that a waiting one follows: the last that is not over yet, else the last that ran."""
    earlier = [other for other in record.links if other.index < link.index]
    live = [other for other in earlier if not other.final]
    candidates = live or [other for other in earlier if other.started]
    return candidates[-1] if candidates else None


def why_loose(record: ChainRecord, predecessor: Link, job: Job | None) -> str:
    """Why the successor of a link that runs as ``job`` cannot be bound to its nodes now; empty: it can."""
    if job is None or job.state is not JobState.RUNNING or not job.node_list:
        return f"link {predecessor.index} has no nodes now"
    others = [other.index for other in record.live if other.index != predecessor.index]
    return f"link {others[0]} has not ended either" if record.chain.one_writer and others else ""


def successor(record: ChainRecord) -> Link | None:
    """The running successor, if an earlier link still runs."""
    running = [link for link in record.links if link.running]
    return running[-1] if len(running) > 1 else None


def to_retire(record: ChainRecord, ready: bool, now: Seconds) -> tuple[Link, ...]:
    """Running links to be asked now to exit; a suspended one is asked once it is resumed.

    ``ready``: whether the successor has reported that it is ready.
    """
    heir = successor(record)
    if heir is None or heir.suspended != ABSENT or not _due(record, heir, ready, now):
        return ()
    running = (link for link in record.links if link.running and link.suspended == ABSENT)
    return tuple(link for link in running if link is not heir and not link.is_retired)


def why_to_retire(record: ChainRecord, ready: bool) -> str:
    """The reason where ``to_retire`` finds a link."""
    policy, bound = record.chain.handover.policy, record.chain.handover.max_overlap
    if policy is HandoverPolicy.ON_START:
        return "its successor runs"
    if policy is HandoverPolicy.WHEN_READY and ready:
        return "its successor is ready"
    return f"both links have run for {bound} s, the maximum overlap (--max-overlap)"


def to_end(record: ChainRecord, now: Seconds) -> tuple[Link, ...]:
    """Links asked to exit that still run after their grace period, and links that are requeued meanwhile."""
    grace = record.chain.handover.signal.lead
    return tuple(
        link
        for link in record.live
        if link.is_retired and (link.requeued or not link.running or now >= link.retired + grace)
    )


def let_run(record: ChainRecord, now: Seconds) -> str:
    """Why no successor of the running link is submitted yet; empty: nothing prevents it.

    If a forecast is longer than the time limit, a successor is submitted as each link starts. If that starts
    immediately, the forecast was wrong, and link after link would be replaced before it has done anything. So
    after a link that was replaced before half of its limit, the next ones run for an hour first, twice as long
    for each further one among the last eight, and for half of their limit at most.
    """
    early, head = _early_ones(record), record.head
    if head is None or now >= (until := _runs_until(record)):
        return ""
    links = "1 link" if early == 1 else f"{early} links"
    how = "was replaced before half of its time limit" if early == 1 else "were replaced before half of theirs"
    return f"{links} {how}; link {head.index} first runs for {hours(until - head.start)} without a successor"


def _early_ones(record: ChainRecord) -> int:
    """Number of the last links that were replaced early; with one writer no link replaces another."""
    if record.chain.one_writer:
        return 0
    return sum(map(_replaced_early, [link for link in record.links if link.started][-_EARLY_AMONG - 1 : -1]))


def _runs_until(record: ChainRecord) -> Seconds:
    """Until when the running link gets no successor; 0: it may have one."""
    early, head = _early_ones(record), record.head
    if not early or head is None:
        return 0
    limit = record.chain.request.limit if head.limit == ABSENT else head.limit
    return head.start + min(limit // 2, _FIRST_RUN << (early - 1))


def _replaced_early(link: Link) -> bool:
    told = link.retired if link.is_retired else link.telling
    return not link.requeued and ABSENT not in (told, link.limit) and told - link.start < link.limit // 2


def told_to_leave(link: Link) -> bool:
    """Whether Mirage has asked the link to exit, or may have: how it ends then says nothing of its work."""
    return link.is_retired or link.telling != ABSENT


def to_cancel(record: ChainRecord) -> tuple[Link, ...]:
    """Links of a chain that is over whose jobs have no business on the cluster any more."""
    if not record.over:
        return ()
    return tuple(
        link
        for link in record.live
        if link.job_id != NO_JOB and (not link.running or record.cancel_running or in_vain(record, link))
    )


def next_instant(record: ChainRecord, now: Seconds) -> Seconds:
    """When something about the handover falls due at the latest; ``NEVER`` where nothing does."""
    handover, heir = record.chain.handover, successor(record)
    due = [link.retired + handover.signal.lead for link in record.live if link.is_retired]
    if heir is not None and handover.max_overlap:
        due.append(heir.start + handover.max_overlap)
    due.append(_runs_until(record))
    return min((instant for instant in due if instant > now), default=NEVER)


def waited_out(record: ChainRecord, link: Link) -> bool:
    """Whether the ended ``link`` waited for its predecessor until it ended itself: its script never ran.

    Not where it left with an exit code, which only a script does: the end of the one before is then not known yet.
    """
    last = before(record, link)
    if not link.looks or not link.started or last is None or _left_by_itself(link):
        return False
    return last.running or (last.final and last.end >= link.end)


def _left_by_itself(link: Link) -> bool:
    """Whether its shell exited, ended by no signal (which shells say as 128 and its number)."""
    return link.job_state in (JobState.COMPLETED, JobState.FAILED) and link.exit_code <= _SIGNALS


def in_vain(record: ChainRecord, link: Link) -> bool:
    """Whether it started after the link that ended the chain: no snapshot had shown that end yet."""
    if link.index <= record.ended_by or not record.ended_by:
        return False
    return record.chain.one_writer or link.start >= record.links[record.ended_by - 1].end


def _due(record: ChainRecord, heir: Link, ready: bool, now: Seconds) -> bool:
    handover = record.chain.handover
    if handover.policy is HandoverPolicy.ON_START:
        return True
    if handover.policy is HandoverPolicy.WHEN_READY and ready:
        return True
    return handover.max_overlap > 0 and now >= heir.start + handover.max_overlap
