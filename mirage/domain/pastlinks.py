"""Jobs in accounting of links that a database may lack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.chainid import find_tags, split_tag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirage.domain.job import Job, JobId, Seconds


def whole_runs(rows: Iterable[Job]) -> list[Job]:
    """One job for each run, in the order of submission; accounting has a row for each size of a run.

    A row of another size bears the time of the change as its submit time, and starts when the run did, so before
    that: the run was submitted when the row of its first size was. Where that row is not there, by its start.
    """
    runs: list[Job] = []
    place: dict[tuple[JobId, Seconds], int] = {}
    for row in sorted(rows, key=lambda row: row.submit):
        key = row.job_id, row.start
        if not 0 <= row.start < row.submit:
            place[key] = len(runs)
            runs.append(row)
        elif key in place:
            first = runs[place[key]]
            runs[place[key]] = replace(row, submit=first.submit, tag=row.tag or first.tag)
        else:
            place[key] = len(runs)
            runs.append(replace(row, submit=row.start))
    return runs


@dataclass(frozen=True, slots=True)
class PastLinks:
    """Jobs with a tag of Mirage as comment, and known links whatever their comments."""

    jobs: tuple[Job, ...] = ()
    """A job that was requeued may stand here once for each of its runs."""
    unread: frozenset[str] = frozenset()
    """Tags in rows that could not be read."""

    @classmethod
    def of(cls, runs: Iterable[Job], unreadable: Iterable[str], ids: Collection[JobId]) -> PastLinks:
        """Those of ``runs`` that have a tag or one of ``ids``; ``unreadable``: rows that could not be read."""
        found = tuple(job for job in whole_runs(runs) if job.job_id in ids or split_tag(job.tag) is not None)
        return cls(found, frozenset().union(*map(find_tags, unreadable)))

    def joined(self, other: PastLinks) -> PastLinks:
        """Return the jobs and the unread tags of both."""
        return PastLinks((*self.jobs, *other.jobs), self.unread | other.unread)
