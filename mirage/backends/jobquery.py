"""Queries to accounting about a list of jobs, also where it rejects the list because of a few of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.seldom import Seldom
from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirage.domain.job import Job, JobId

_LOG = logging.getLogger(__name__)

MOST_PARTS = 5
"""Queries of one cycle about parts of a list that was rejected."""


@dataclass(frozen=True, slots=True)
class Fates:
    """What accounting answered."""

    jobs: Mapping[JobId, Job]
    answered: bool = True
    """``False``: it could not be asked; nothing is known."""
    lagging: bool = True
    """Whether it may yet learn of what it does not know."""
    rejected: str = ""
    """Not answered because of the query itself, and why: a shorter list may be answered."""
    unanswered: frozenset[JobId] = frozenset()
    """The jobs of the list of which it has said nothing, where it has answered about others."""
    unreadable: Sequence[str] = ()
    """Rows that could not be read, as ``Queue.unreadable`` has them."""


class QueryRejected(ClusterUnavailable):
    """Accounting is there and does not answer this query; the text has its words."""


def no_answer(trouble: Exception) -> Fates:
    """What is known where accounting did not answer."""
    if isinstance(trouble, QueryRejected):
        return Fates({}, answered=False, rejected=str(trouble))
    _LOG.warning("accounting cannot be asked, links stay as they were last seen: %s", trouble)
    return Fates({}, answered=False)


Ask = Callable[["Collection[JobId]"], Fates]
"""Asks accounting for jobs by id; without ids, for all recent ones."""


@dataclass
class JobQuery:
    """Asks for a list of jobs at once, and where that is rejected in halves: no job hides the others.

    A rejected list costs at most ``MOST_PARTS`` queries more in a cycle. What remains unanswered is asked first in
    the next cycle, each part as small as it has become, so that in the end only the jobs that cause the rejection
    have no answer.
    """

    _parts: list[frozenset[JobId]] = field(default_factory=list)
    """The parts without an answer, those of one job last."""
    _seldom: Seldom = field(default_factory=Seldom)

    def about(self, ids: Collection[JobId], ask: Ask) -> Fates:
        """What accounting knows of these jobs; without ids, of all recent ones."""
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
                whole = replace(fates, jobs={**whole.jobs, **fates.jobs}, unreadable=unreadable)
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
