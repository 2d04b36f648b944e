"""What has become of our links: the queue's answer, accounting's, and what was seen last, made one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import NO_JOB
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.snapshot import Snapshot
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import PartitionState
    from mirage.slurm.queuetext import Queue, QueuedJob

_log = logging.getLogger(__name__)

GRACE: Seconds = 600
"""How long accounting may lag behind the controller, or be away, before a link it cannot tell of is given up."""

# Ends after which a job does not go back to the queue; the others may be a requeue in the making.
_FINAL = (
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.CANCELLED,
    JobState.OUT_OF_MEMORY,
    JobState.DEADLINE,
)


@dataclass(frozen=True, slots=True)
class Fates:
    """What accounting answered."""

    jobs: Mapping[JobId, Job]
    answered: bool = True
    """``False``: it could not be asked; nothing is known."""
    lagging: bool = True
    """Whether it may yet learn of what it does not know."""


Ask = Callable[["Collection[JobId]"], Fates]
"""Asks accounting for jobs by id; without ids, for all recent ones."""


@dataclass
class LinkMemory:
    """Keeps what was last seen of each link, for the times in which accounting does not tell."""

    last: dict[str, Job] = field(default_factory=dict)
    missing_since: dict[str, Seconds] = field(default_factory=dict)
    rivals: tuple[Job, ...] = ()
    """After ``account``: jobs whose tag another one bears."""
    unaccounted: frozenset[str] = frozenset()
    """After ``account``: links that have left the queue, and of whose end nothing is known yet."""

    def account(self, queue: Queue, expected: Mapping[str, JobId], ask: Ask, now: Seconds) -> dict[str, Job]:
        """Every link that is known, by tag; asks at most one question.

        Links whose id is not known are asked for only when those with an id are accounted for: if they are not in
        the queue they do not run, so that there is no hurry. A link whose row in the queue could not be read is
        there all the same: it stays as it was last seen, for as long as that lasts.

        A link that has left the queue, that was never seen and of which accounting cannot be asked is
        ``unaccounted`` for ``GRACE`` seconds, and after that not known any more.
        """
        seen, self.rivals = _by_tag(queue.ours, expected)
        self.unaccounted = frozenset()
        links = {tag: found.job for tag, found in seen.items()}
        missing = [tag for tag in expected if tag not in seen]
        self.missing_since = {tag: self.missing_since.get(tag, now) for tag in missing}
        completing = {found.job.job_id: tag for tag, found in seen.items() if found.completing}
        if missing or completing:
            fates = ask({expected[tag] for tag in missing} - {NO_JOB} | set(completing))
            for job_id, tag in completing.items():
                links[tag] = _end_of(seen[tag], fates.jobs.get(job_id))
            shown = {row.partition(CELL)[0] for row in queue.unreadable}
            self.missing_since |= {tag: now for tag in missing if str(expected[tag]) in shown}
            links |= self._missing(missing, expected, fates, now)
        self.last = links
        return dict(links)

    def _missing(
        self, tags: Iterable[str], expected: Mapping[str, JobId], fates: Fates, now: Seconds
    ) -> dict[str, Job]:
        by_tag = {job.tag: job for job in fates.jobs.values()}
        found = {}
        for tag in tags:
            if expected[tag] == NO_JOB:
                job = _ended_unseen(by_tag.get(tag))
            else:
                job = self._fate(tag, expected[tag], fates, now)
            if job is not None:
                found[tag] = replace(job, tag=tag)
        return found

    def _fate(self, tag: str, job_id: JobId, fates: Fates, now: Seconds) -> Job | None:
        told, last = fates.jobs.get(job_id), self.last.get(tag)
        if told is not None and told.state.finished:
            return told
        patient = now - self.missing_since[tag] <= GRACE
        if fates.answered:
            return (last or told) if fates.lagging and patient else None
        if last is None and patient:
            self.unaccounted |= {tag}
        return last

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


def _by_tag(
    ours: Iterable[QueuedJob], expected: Mapping[str, JobId]
) -> tuple[dict[str, QueuedJob], tuple[Job, ...]]:
    """One job a tag: the one expected, else one that has not ended, else the first submitted; and the others."""
    tag_of = {job_id: tag for tag, job_id in expected.items() if job_id != NO_JOB}
    found: dict[str, QueuedJob] = {}
    rivals = []
    for queued in sorted(ours, key=lambda q: (q.job.job_id not in tag_of, q.job.state.finished, q.job.job_id)):
        tag = tag_of.get(queued.job.job_id, queued.job.tag)
        if tag in found:
            _log.warning("jobs %d and %d both say that they are %s", found[tag].job.job_id, queued.job.job_id, tag)
            rivals.append(queued.job)
        elif expected.get(tag, NO_JOB) in (NO_JOB, queued.job.job_id):
            found[tag] = replace(queued, job=replace(queued.job, tag=tag))
    return found, tuple(rivals)


def _end_of(completing: QueuedJob, told: Job | None) -> Job:
    """How a job ended whose nodes are being cleaned up; it runs on where that is not yet said.

    Not every accounting tells exit codes; the queue may have forgotten the job before it is looked at again.
    """
    if told is None or told.state not in _FINAL:
        return completing.job
    end = told.end if told.end != ABSENT else completing.job.end
    code = told.exit_code if told.exit_code != ABSENT else completing.exit_code
    return replace(completing.job, state=told.state, exit_code=code, end=end)


def _ended_unseen(told: Job | None) -> Job | None:
    """A job found by its tag alone: it counts if it ran and ended."""
    return told if told is not None and told.state.finished and told.start != ABSENT else None
