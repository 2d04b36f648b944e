"""What has become of our links: the queue's answer, accounting's, and what was seen last, made one."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.jobquery import JobQuery
from mirage.backends.seldom import Seldom
from mirage.domain.chain import NO_JOB
from mirage.domain.chainid import marked_for_another
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.snapshot import Snapshot
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirage.backends.jobquery import Ask, Fates
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import PartitionState
    from mirage.slurm.queuetext import Queue, QueuedJob

_log = logging.getLogger(__name__)
_SELDOM = Seldom()
_TAG = re.compile(r"mirage:[A-Za-z0-9._-]+:[0-9]+")

GRACE: Seconds = 600
"""How long accounting may lag behind the controller before a link that it does not know is given up."""

# Ends after which a job does not go back to the queue; the others may be a requeue in the making.
_FINAL = (
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.CANCELLED,
    JobState.OUT_OF_MEMORY,
    JobState.DEADLINE,
)


@dataclass
class LinkMemory:
    """Keeps what was last seen of each link, for the times in which accounting does not tell."""

    last: dict[str, Job] = field(default_factory=dict)
    missing_since: dict[str, Seconds] = field(default_factory=dict)
    rivals: tuple[Job, ...] = ()
    """After ``account``: jobs whose tag another one bears."""
    query: JobQuery = field(default_factory=JobQuery)
    _by_id_before: bool = False
    """Links without an id were not asked for in the cycle before."""
    unaccounted: frozenset[str] = frozenset()
    """After ``account``: links that have left the queue, and of whose end nothing is known yet."""
    _seldom: Seldom = field(default_factory=Seldom)

    def account(self, queue: Queue, expected: Mapping[str, JobId], ask: Ask, now: Seconds) -> dict[str, Job]:
        """Every link that is known, by tag; asks at most one question, unless accounting rejects it.

        Links whose id is not known are asked for by their tags, among all recent jobs; in every second cycle only
        where links with an id are to be asked for: if they are not in the queue they do not run, so it can wait.
        A link whose row, of the queue or of accounting, could not be read is there all the same: it stays as it
        was last seen, as long as that lasts. A row without an id may be any link's.

        A link that has left the queue and was never seen is ``unaccounted`` while accounting cannot be asked, has
        not been asked, or may not know it yet: it may have completed the work, or failed for good.
        """
        seen, self.rivals = _by_tag(queue.ours, expected)
        self.report_unreadable("queue", queue.unreadable)
        self.unaccounted = frozenset()
        links = {tag: found.job for tag, found in seen.items()}
        missing = [tag for tag, job_id in expected.items() if not _is_there(tag, job_id, seen)]
        self.missing_since = {tag: self.missing_since.get(tag, now) for tag in missing}
        completing = {tag: found.job.job_id for tag, found in seen.items() if found.completing}
        if missing or completing:
            ids = {expected[tag] for tag in missing} - {NO_JOB} | set(completing.values())
            without_id = any(expected[tag] == NO_JOB for tag in missing)
            by_tag = without_id and (not ids or self._by_id_before)
            self._by_id_before = without_id and not by_tag
            fates = self.query.about(() if by_tag else ids, ask)
            for tag, job_id in completing.items():
                links[tag] = _end_of(seen[tag], fates.jobs.get(job_id))
            self.report_unreadable("accounting", fates.unreadable)
            unread = _Unread.of([*queue.unreadable, *fates.unreadable])
            held = {tag for tag in missing if unread.may_be(tag, expected[tag])}
            self.missing_since |= dict.fromkeys(held, now)
            links |= self._missing(missing, expected, fates, by_tag, now, held)
        self.last = links
        return dict(links)

    def report_unreadable(self, source: str, rows: Sequence[str]) -> None:
        """Log that rows are left out: once an hour for each that is the first of them."""
        if rows and self._seldom.allows(source, rows[0].partition(CELL)[0]):
            _log.warning("event=unreadable_rows source=%s rows=%d first=%r", source, len(rows), rows[0][:200])

    def _missing(
        self,
        tags: Iterable[str],
        expected: Mapping[str, JobId],
        fates: Fates,
        by_tag: bool,
        now: Seconds,
        held: Collection[str],
    ) -> dict[str, Job]:
        jobs = fates.jobs.values()
        bearers = {job.tag: job for job in jobs if not marked_for_another(job.tag, job.user)}
        found = {}
        for tag in tags:
            if expected[tag] == NO_JOB:
                job = _ended_unseen(bearers.get(tag))
                if not (fates.answered and by_tag) or (job is None and tag in held):
                    self.unaccounted |= {tag}
            else:
                certain = fates.answered and not by_tag and tag not in held
                certain = certain and expected[tag] not in fates.unanswered
                job = self._fate(tag, expected[tag], fates, now, certain=certain)
            if job is not None:
                found[tag] = replace(job, tag=tag)
        return found

    def _fate(self, tag: str, job_id: JobId, fates: Fates, now: Seconds, *, certain: bool) -> Job | None:
        """``certain``: accounting answered about this id, and no row was left out; else silence says nothing."""
        told, last = fates.jobs.get(job_id), self.last.get(tag)
        if told is not None and told.state.finished:
            return told
        patient = fates.lagging and now - self.missing_since[tag] <= GRACE
        if certain and not patient:
            return None
        known = last or told
        if known is None:
            self.unaccounted |= {tag}
        return known

    def snapshot(
        self, now: Seconds, queue: Queue, partitions: tuple[PartitionState, ...], links: Mapping[str, Job]
    ) -> Snapshot:
        """What was seen at ``now``, its links accounted for."""
        return Snapshot(
            time=now,
            pending=queue.pending,
            running=queue.running,
            partitions=partitions,
            users=queue.users,
            partition_names=queue.partitions,
            qos_names=queue.qos,
            links=links,
            rivals=self.rivals,
            unaccounted=self.unaccounted,
            labels=queue.labels,
        )


@dataclass(frozen=True, slots=True)
class _Unread:
    """What the rows that could not be read show of the links that they may be."""

    ids: Collection[str]
    tags: Collection[str]
    nameless: bool
    """A row shows no id."""

    @classmethod
    def of(cls, rows: Collection[str]) -> _Unread:
        ids = {row.partition(CELL)[0] for row in rows}
        tags = {tag for row in rows for tag in _TAG.findall(row)}
        return cls(ids, tags, not all(shown.isdecimal() for shown in ids))

    def may_be(self, tag: str, job_id: JobId) -> bool:
        return self.nameless or str(job_id) in self.ids or tag in self.tags


def _by_tag(
    ours: Iterable[QueuedJob], expected: Mapping[str, JobId]
) -> tuple[dict[str, QueuedJob], tuple[Job, ...]]:
    """One job a tag: the one expected, else one of the tag's owner, not ended, submitted first; and the others.

    A job that several chains claim is shown to each; whose it is ``Snapshot.link`` knows.
    """
    tags_of: defaultdict[JobId, list[str]] = defaultdict(list)
    for tag, job_id in expected.items():
        if job_id != NO_JOB:
            tags_of[job_id].append(tag)
    found: dict[str, QueuedJob] = {}
    rivals = []

    def rank(queued: QueuedJob) -> tuple[bool, bool, bool, JobId]:
        job = queued.job
        return job.job_id not in tags_of, marked_for_another(job.tag, job.user), job.state.finished, job.job_id

    for queued in sorted(ours, key=rank):
        for tag in tags_of.get(queued.job.job_id) or (queued.job.tag,):
            if tag in found:
                if _SELDOM.allows("duplicate_tag", queued.job.user):
                    one, other = found[tag].job, queued.job
                    ids, users = f"{one.job_id},{other.job_id}", f"{one.user},{other.user}"
                    _log.warning("event=duplicate_tag jobs=%s users=%s tag=%s", ids, users, tag)
                rivals.append(queued.job)
            elif expected.get(tag, NO_JOB) in (NO_JOB, queued.job.job_id):
                found[tag] = replace(queued, job=replace(queued.job, tag=tag))
    return found, tuple(rivals)


def _is_there(tag: str, job_id: JobId, seen: Mapping[str, QueuedJob]) -> bool:
    """Whether the queue shows the link. Anybody may write a tag: where no ID is known, its mark has a say."""
    if tag not in seen:
        return False
    return job_id != NO_JOB or not marked_for_another(tag, seen[tag].job.user)


def _end_of(completing: QueuedJob, told: Job | None) -> Job:
    """How a job ended whose nodes are being cleaned up; it runs on where that is not yet said.

    Not every accounting tells exit codes; the queue may have forgotten the job before it is looked at again.
    """
    if told is None or told.state not in _FINAL:
        return completing.job
    end = told.end if told.end != ABSENT else completing.job.end
    code = told.exit_code if told.exit_code != ABSENT else completing.exit_code
    return replace(completing.job, state=told.state, exit_code=code, end=end, completing=True)


def _ended_unseen(told: Job | None) -> Job | None:
    """A job found by its tag alone: it counts if it ran and ended."""
    return told if told is not None and told.state.finished and told.start != ABSENT else None
