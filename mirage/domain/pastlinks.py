"""What accounting tells of links that a database may not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.chainid import find_tags, split_tag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirage.domain.job import Job, JobId


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
        found = tuple(job for job in runs if job.job_id in ids or split_tag(job.tag) is not None)
        return cls(found, frozenset().union(*map(find_tags, unreadable)))

    def joined(self, other: PastLinks) -> PastLinks:
        """What both tell."""
        return PastLinks((*self.jobs, *other.jobs), self.unread | other.unread)
