"""Queries to accounting about a list of jobs, also where it rejects the list because of a few of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.seldom import Seldom
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.link import is_link
from mirage.domain.tags import whole_runs
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirage.domain.job import Job, JobId
    from mirage.domain.link import LinkIdentity

_LOG = logging.getLogger(__name__)

MOST_PARTS = 5
"""Queries of one cycle about parts of a list that was rejected."""


@dataclass(frozen=True, slots=True)
class Fates:
    """The answer of accounting to one query."""

    jobs: Mapping[JobId, Job]
    answered: bool = True
    """``False``: it could not be asked; nothing is known."""
    lagging: bool = True
    """Whether it may yet learn of what it does not know."""
    rejected: str = ""
    """Not answered because of the query itself, and why: a shorter list may be answered."""
    unanswered: frozenset[JobId] = frozenset()
    """Jobs of the list that are missing in an answer that has others."""
    unreadable: Sequence[str] = ()
    """Rows that could not be read, as ``Queue.unreadable`` has them."""
    earlier: Sequence[Job] = ()
    """Runs of the same IDs before those of ``jobs``: of requeued jobs, or of jobs that had the number before."""

    @classmethod
    def of_runs(cls, runs: Sequence[Job], unreadable: Sequence[str]) -> Fates:
        """Of an answer that has every run; of an ID with a run that cannot be read nothing is known."""
        without = {row.partition(CELL)[0] for row in unreadable}
        known = whole_runs(job for job in runs if str(job.job_id) not in without)
        last = {job.job_id: job for job in known}
        return cls(last, unreadable=unreadable, earlier=[job for job in known if last[job.job_id] is not job])

    def of(self, job_id: JobId, link: LinkIdentity) -> Job | None:
        """The last run of this ID that is the link's."""
        last = self.jobs.get(job_id)
        runs = [*(job for job in self.earlier if job.job_id == job_id), *([last] if last else [])]
        return next((job for job in reversed(runs) if is_link(job, link)), None)

    def with_comments(self, queued: Iterable[Job]) -> Fates:
        """With the queue's comments of jobs that have not ended: accounting gets one with the job's end."""
        comments = {job.job_id: job.tag for job in queued}
        jobs = {
            job_id: replace(job, tag=comments.get(job_id, "")) if not (job.tag or job.state.finished) else job
            for job_id, job in self.jobs.items()
        }
        return replace(self, jobs=jobs)

    def completed(self, jobs: Mapping[str, JobId], links: Mapping[str, LinkIdentity], ask: Ask) -> Fates:
        """With every run of the IDs whose last run is another job's: asks once, where there are such."""
        others = {
            job_id for tag, job_id in jobs.items() if job_id in self.jobs and not self.of(job_id, links[tag])
        }
        if not others:
            return self
        more = ask(others)
        if not more.answered:
            return replace(self, unanswered=self.unanswered | others)
        unreadable = [*self.unreadable, *more.unreadable]
        return replace(self, earlier=[*self.earlier, *more.earlier], unreadable=unreadable)

    def runs(self) -> Iterator[Job]:
        """Every run, the last ones last."""
        yield from self.earlier
        yield from self.jobs.values()


class QueryRejected(ClusterUnavailable):
    """Accounting is there and does not answer this query; the text has its words."""


def no_answer(trouble: Exception) -> Fates:
    """The result where accounting did not answer."""
    if isinstance(trouble, QueryRejected):
        return Fates({}, answered=False, rejected=str(trouble))
    text = "links keep their last known state"
    _LOG.warning("event=accounting_unavailable error=%r text=%r", str(trouble), text)
    return Fates({}, answered=False)


Ask = Callable[["Collection[JobId]"], Fates]
"""Asks accounting for jobs by id; without ids, for all recent ones."""


@dataclass
class JobQuery:
    """Queries a list of jobs in one query, and a rejected list in halves: no job hides the others.

    A rejected list costs at most ``MOST_PARTS`` queries more in a cycle. What remains unanswered is asked first in
    the next cycle, each part as small as it has become, so that in the end only the jobs that cause the rejection
    have no answer.
    """

    _parts: list[frozenset[JobId]] = field(default_factory=list)
    """The parts without an answer, those of one job last."""
    _seldom: Seldom = field(default_factory=Seldom)

    def about(self, ids: Collection[JobId], ask: Ask) -> Fates:
        """Rows of accounting for these jobs; without ids, for all recent ones."""
        fates = ask(ids)
        if fates.rejected and len(ids) > 1:
            return self._in_parts(frozenset(ids), ask)
        if fates.rejected:
            self._say(ids, fates.rejected)
        elif ids:
            self._parts = []
        return fates

    def _in_parts(self, ids: frozenset[JobId], ask: Ask) -> Fates:
        waiting = deque(self._of(ids))
        alone: list[frozenset[JobId]] = []
        whole = Fates({})
        for _ in range(MOST_PARTS):
            if not waiting:
                break
            part = waiting.popleft()
            fates = ask(part)
            if fates.rejected and len(part) == 1:
                self._say(part, fates.rejected)
                alone.append(part)
            elif fates.rejected:
                waiting.extendleft(_halves(part))
            elif fates.answered:
                unreadable = [*whole.unreadable, *fates.unreadable]
                jobs, earlier = {**whole.jobs, **fates.jobs}, [*whole.earlier, *fates.earlier]
                whole = replace(fates, jobs=jobs, unreadable=unreadable, earlier=earlier)
            else:
                waiting.appendleft(part)
                break
        self._parts = [*waiting, *alone]
        return replace(whole, unanswered=frozenset().union(*self._parts))

    def _of(self, ids: frozenset[JobId]) -> Iterable[frozenset[JobId]]:
        """The list in parts: what is new or was answered last time, then the parts without an answer."""
        kept = [part & ids for part in self._parts]
        parts = [part for part in (ids.difference(*kept), *kept) if part]
        return _halves(parts[0]) if len(parts) == 1 else parts

    def _say(self, part: Collection[JobId], reason: str) -> None:
        job = ",".join(map(str, part)) or "recent"
        if self._seldom.allows("job_query_rejected", job):
            text = 'event=job_query_rejected job=%s reason="%s": its link stays as it was last seen'
            _LOG.warning(text, job, reason)


def _halves(part: frozenset[JobId]) -> tuple[frozenset[JobId], ...]:
    ids = sorted(part)
    middle = (len(ids) + 1) // 2
    return tuple(frozenset(half) for half in (ids[:middle], ids[middle:]) if half)
