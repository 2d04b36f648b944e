"""A chain of a restored database: what Slurm has of its links that the record has not. Pure.

The record is brought up to what queue and accounting show, so that no link is submitted twice and the chain ends
where its work has ended. What no job shows is lost: what its owner has asked for since the backup. A chain that
continues is therefore paused until its owner has looked at it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.chain import ChainStatus, HandoverPolicy
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_JOB, Link, LinkIdentity, LinkState, is_link
from mirage.domain.tags import split_tag
from mirage.provisioner import machine
from mirage.provisioner.events import PauseAsked, adopted, link_events
from mirage.provisioner.rejections import paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.domain.tags import PastLinks
    from mirage.provisioner.events import Event

MOST_ADOPTED = 10_000
"""Links that one chain takes over from accounting at most."""
_MOST_MISSING = 20
"""Indices in a row without a job, beyond which no job is taken for a link: owners may write any comment."""
_MOST_NAMED = 3
_RESTORED, _PAUSED = "the database was restored from", "; paused already in "
_MOST_RUNS = 2
"""A job that was requeued is two links: how the second went shows once the first has ended."""


class PastJobs:
    """Accounting's answer by chain, and whether a missing job in it is significant."""

    def __init__(
        self, past: PastLinks | None, keeps_comments: bool | None, records: Iterable[ChainRecord]
    ) -> None:
        """``past``: ``None`` if accounting cannot answer; ``keeps_comments``: ``None`` if that is unknown."""
        self._known = past is not None
        self._keeps_comments = keeps_comments
        self._of_chain: defaultdict[tuple[ChainId, str], list[Job]] = defaultdict(list)
        self._by_id: defaultdict[tuple[JobId, str], list[Job]] = defaultdict(list)
        for job in past.jobs if past else ():
            self._by_id[job.job_id, job.user].append(job)
            if (found := split_tag(job.tag)) is not None:
                self._of_chain[found[0], job.user].append(job)
        read = {job.tag for job in past.jobs} if past else set()
        unread = (split_tag(tag) for tag in (past.unread - read if past else ()))
        self._unread = {found[0] for found in unread if found is not None}
        if past is not None and keeps_comments is None:
            self._keeps_comments = any(self._shows_own(record) for record in records)

    def why_not_known(self, record: ChainRecord) -> str:
        """Why links may have been there that nothing shows any more; empty: all that were are shown."""
        if not self._known and self._keeps_comments is not False:
            return "accounting does not show which links were submitted since"
        own = [job for link in record.links for job in self._runs(record, link)]
        lost = [job.job_id for job in own if job.state.finished and not job.tag]
        if not self._keeps_comments:
            return "accounting keeps no job comments, so links submitted since are unknown"
        if lost:
            return f"accounting has job {lost[-1]} without its comment, so later links may be missing"
        if self._hides(record):
            return "accounting does not show the jobs of its known links"
        if record.chain.chain_id in self._unread:
            return "an entry of accounting about one of its links cannot be read"
        return ""

    def of(self, record: ChainRecord) -> dict[int, Job]:
        """The owner's jobs with the chain's tag, by index; of several the last run of one that has started."""
        found: dict[int, Job] = {}
        for job in sorted(self._of_chain.get((record.chain.chain_id, record.chain.owner), ()), key=_rank):
            tag = split_tag(job.tag)
            assert tag is not None, "only jobs with a tag are in here"
            found[tag[1]] = job
        return found

    def strangers(self, records: Iterable[ChainRecord]) -> dict[ChainId, str]:
        """Chains of which accounting has jobs and the database has nothing, with their owners."""
        known = {record.chain.chain_id for record in records}
        return {chain_id: owner for chain_id, owner in self._of_chain if chain_id not in known}

    def _hides(self, record: ChainRecord) -> bool:
        """Whether accounting shows less than there is, such as with ``PrivateData`` to one who is no Operator.

        By time ``sacct`` shows no job that was never eligible, so a pending link shows nothing.
        """
        running = [link for link in record.live if link.running]
        if running:
            return not all(self._runs(record, link) for link in running)
        return bool(record.links) and not self._by_id

    def _shows_own(self, record: ChainRecord) -> bool:
        return any(
            job.state.finished and job.tag == link.tag for link in record.links for job in self._runs(record, link)
        )

    def _runs(self, record: ChainRecord, link: Link) -> list[Job]:
        """The runs of a link that the record knows by the ID of its job."""
        request, owner = record.chain.request, record.chain.owner
        known = LinkIdentity(link.tag, owner, request.name, request.partition, link.job_submit)
        return [job for job in self._by_id.get((link.job_id, owner), ()) if is_link(job, known)]


@dataclass(frozen=True, slots=True)
class BroughtUp:
    """A record brought up to what Slurm shows."""

    record: ChainRecord
    events: tuple[Event, ...]
    """Events that the record lacked, in order; the pause, if the chain pauses, is the last."""


def bring_up(record: ChainRecord, snapshot: Snapshot, past: PastJobs, since: Seconds, now: Seconds) -> BroughtUp:
    """The record of a chain that is not over, with the links that were submitted since the backup.

    A link after which the chain continued did not end it (``_went_on``). The chain is paused where a link was
    found, and where not all can be known.
    """
    before, unknown = record, past.why_not_known(record)
    jobs = _jobs(record, snapshot, past.of(record))
    highest = _highest(record, jobs)
    new = {index: job for index, job in jobs.items() if index <= highest}
    events: list[Event] = []
    for _ in range(_MOST_RUNS):
        record = _told(record, jobs, tells=bool(unknown) and _tells(record))
        seen = link_events(record, _with(snapshot, record, jobs), adopts=False)
        record = _applied(record, seen, now, new)
        events += seen
    record = _without_planned(record, jobs, highest, now)
    for index in range(record.next_index, highest + 1):
        if index not in jobs:
            record = record.with_link(_missing(record, index, now))
            continue
        seen = tuple(adopted(index, jobs[index]))
        record = _applied(record, seen, now, new)
        events += seen
    record = _told(record, jobs, tells=False)
    found = [new[index] for index in sorted(new) if _is_new(before, index)]
    if record.over or not (found or unknown):
        return BroughtUp(record, tuple(events))
    pause = PauseAsked(_why_paused(before, found, unknown, since))
    return BroughtUp(machine.apply(record, pause, now), (*events, pause))


def _is_new(record: ChainRecord, index: int) -> bool:
    """Whether a job of this index is none that the record knows of."""
    return index > len(record.links) or record.links[index - 1].job_id == NO_JOB


def _jobs(record: ChainRecord, snapshot: Snapshot, past: Mapping[int, Job]) -> dict[int, Job]:
    """The jobs of links that the record has no job of: the queue's, else accounting's."""
    chain, releases = record.chain, snapshot.stock is not None
    jobs = {
        index: _as_seen(job)
        for index, job in past.items()
        if index > 0 and _is_new(record, index) and not (releases and job.start == ABSENT)
    }
    for job in (*snapshot.links.values(), *snapshot.rivals):
        tag = split_tag(job.tag)
        if tag is None or tag[0] != chain.chain_id or tag[1] == 0 or job.user != chain.owner:
            continue
        if _is_new(record, tag[1]) and snapshot.link(job.tag, chain.owner) is job:
            jobs[tag[1]] = job
    return jobs


def _as_seen(job: Job) -> Job:
    """Accounting does not say when the limit ends a job that it takes for a running one."""
    ends = job.state.finished or job.start == ABSENT or job.end != ABSENT
    return job if ends else replace(job, end=job.start + max(job.limit, 0))


def _highest(record: ChainRecord, jobs: Mapping[int, Job]) -> int:
    """The last index that is the chain's."""
    highest = len(record.links)
    for index in sorted(jobs):
        if index > highest + _MOST_MISSING + 1 or index > len(record.links) + MOST_ADOPTED:
            break
        highest = max(highest, index)
    return highest


def _told(record: ChainRecord, jobs: Mapping[int, Job], *, tells: bool) -> ChainRecord:
    """The record whose live links may have been asked to exit, if a later link may have started."""
    last = max((index for index, job in jobs.items() if _has_run(job)), default=0)
    for link in record.live:
        if (tells or link.index < last) and link.job_id != NO_JOB and link.telling == ABSENT:
            record = record.with_link(replace(link, telling=link.planned))
    return record


def _tells(record: ChainRecord) -> bool:
    handover = record.chain.handover
    return handover.policy not in (HandoverPolicy.NONE, HandoverPolicy.OVERLAP) or handover.max_overlap > 0


def _with(snapshot: Snapshot, record: ChainRecord, jobs: Mapping[int, Job]) -> Snapshot:
    """The snapshot with accounting's jobs of links that the record has planned."""
    planned = {
        record.chain.tag(index): job
        for index, job in jobs.items()
        if index <= len(record.links) and snapshot.link(job.tag, record.chain.owner) is None
    }
    return replace(snapshot, links={**snapshot.links, **planned}) if planned else snapshot


def _applied(record: ChainRecord, events: Iterable[Event], now: Seconds, jobs: Mapping[int, Job]) -> ChainRecord:
    for event in events:
        record = machine.apply(record, event, now)
        if record.over and _went_on(record, event, jobs):
            reason = "it continued after a link that would have ended it"
            record = replace(paused(record, reason, now), cancel_running=False, ended_by=0)
    return record


def _went_on(record: ChainRecord, event: Event, jobs: Mapping[int, Job]) -> bool:
    """Whether the chain continued after an event that would end it, as far as one of these links may show.

    One that was submitted before the event and has not run was waiting for it. It shows nothing where an exit with
    0 is certain to be the end. Otherwise the exit may have followed a warning that the record does not know, and
    one that waits may still be required. One that was cancelled is not: the end of a chain cancels what waits.
    """
    index, end = getattr(event, "index", 0), getattr(event, "end", ABSENT)
    after = [job for later, job in jobs.items() if later > index]
    if any(_has_run(job) or job.submit > end for job in after):
        return True
    return not record.chain.done_by_zero and any(not job.state.finished for job in after)


def _has_run(job: Job) -> bool:
    """Accounting gives a job that was cancelled while it waited its end as its start."""
    if job.start == ABSENT:
        return job.state is JobState.COMPLETED
    return not (job.state is JobState.CANCELLED and job.start == job.end)


def _without_planned(record: ChainRecord, jobs: Mapping[int, Job], highest: int, now: Seconds) -> ChainRecord:
    """The record in which no link waits for a job that would be there, as a later link has one."""
    for link in record.links:
        if link.job_id == NO_JOB and not link.final and link.index < highest and link.index not in jobs:
            record = record.with_link(_missing(record, link.index, now))
    return record


def _missing(record: ChainRecord, index: int, now: Seconds) -> Link:
    reason = "accounting has no job of this link"
    return Link(index, record.chain.tag(index), now, LinkState.LOST, reason=reason)


def _rank(job: Job) -> tuple[bool, Seconds, JobId]:
    return _has_run(job) or job.state is JobState.RUNNING, job.submit, job.job_id


def _why_paused(before: ChainRecord, found: list[Job], unknown: str, since: Seconds) -> str:
    """For the owner, who may not know of any backup; a chain that was paused in it keeps its reason."""
    ends = f"a backup that ends at {format_instant(since)}"
    what = f"{_RESTORED} {ends}"
    if before.status is ChainStatus.PAUSED and not before.reason.startswith(_RESTORED):
        what = f"{before.reason.partition(_PAUSED)[0]}{_PAUSED}{ends}"
    if found:
        named = ", ".join(f"{job.job_id} ({job.tag.rpartition(':')[2]})" for job in found[-_MOST_NAMED:])
        more = f" and {len(found) - _MOST_NAMED} before" if len(found) > _MOST_NAMED else ""
        what += f"; jobs (links) submitted since: {named}{more}"
    if unknown:
        what += f"; {unknown}"
    check = "compare with squeue and sacct" if unknown else "check the chain"
    return f"{what}; {check}, then mirage chain resume {before.chain.chain_id}"
