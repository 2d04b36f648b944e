"""Tags of jobs, ``mirage:CHAIN:LINK``: IDs of chains with a mark of their owner, and jobs found by their tag.

Held jobs wait for the loop; past jobs in accounting may be of links that a database lacks.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections import defaultdict
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mirage.domain.chain import Chain
    from mirage.domain.job import Job, JobId, Seconds


class HeldJobs:
    """Held jobs by tag and owner. Immutable: each cycle creates a new one for all chains."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs = tuple(jobs)
        self._of_chain: dict[tuple[str, str], list[Job]] = defaultdict(list)
        self._of_tag: dict[tuple[str, str], Job] = {}
        for job in self._jobs:
            self._of_chain[job.user, job.tag.rpartition(":")[0]].append(job)
            self._of_tag.setdefault((job.user, job.tag), job)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def of(self, chain: Chain) -> Sequence[Job]:
        """Held jobs of the chain's owner that have tags of its links."""
        return self._of_chain.get((chain.owner, chain.tag(0).rpartition(":")[0]), ())

    def find(self, tag: str, owner: str) -> Job | None:
        """Return the owner's job with this tag; any user may write any comment."""
        return self._of_tag.get((owner, tag))


_MARKED = re.compile(r"\.[a-z2-7]{8}\Z")
_TAG = re.compile(r"mirage:([A-Za-z0-9._-]+):([0-9]{1,9})")


def owned_id(asked: str, owner: str) -> ChainId:
    """The ID of ``owner``'s chain ``asked``, such as ``train.4hq2zk7a``: it ends with a mark of the owner.

    The IDs of two owners are never equal, so a new chain neither takes another's nor reveals that it exists.
    """
    mark = _mark(owner)
    return ChainId(asked if asked.endswith(mark) else f"{asked}{mark}")


def bears_other_mark(chain_id: str, user: str) -> bool:
    """Whether an ID ends as those of another user's chains do, such as ``train.4hq2zk7a``."""
    return bool(_MARKED.search(chain_id)) and not chain_id.endswith(_mark(user))


def marked_for_another(tag: str, user: str) -> bool:
    """Whether a tag, such as ``mirage:train.4hq2zk7a:5``, bears the mark of another user than this one."""
    chain_id = tag.partition(":")[2].rpartition(":")[0]
    return bears_other_mark(chain_id, user)


def split_tag(tag: str) -> tuple[ChainId, int] | None:
    """Return chain and index of a link's tag, ``mirage:train.4hq2zk7a:5``; ``None`` for any other comment."""
    match = _TAG.fullmatch(tag)
    return (ChainId(match[1]), int(match[2])) if match else None


def find_tags(text: str) -> frozenset[str]:
    """Return what looks like a link's tag in a text that holds more."""
    return frozenset(match[0] for match in _TAG.finditer(text))


def _mark(owner: str) -> str:
    digest = sha256(owner.encode("utf-8", "surrogateescape")).digest()
    return f".{b32encode(digest[:5]).decode().lower()}"


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
