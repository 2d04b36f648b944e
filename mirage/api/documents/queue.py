"""The queue as the last look at the cluster showed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.api.conventions.described import Described
from mirage.api.documents.jobs import JobDocument, code_of, job_documents, labels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirage.domain.snapshot import JobColumns, Snapshot


class QueueDocument(Described):
    """One page of it, in order of the jobs' numbers."""

    snapshot: str | None
    """When the queue was looked at; ``null``: never yet."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    own_only: bool
    """Whether the jobs of others are left out: Slurm's PrivateData hides them from users, or is not known."""
    total: int
    """Jobs that the question is about, on all pages."""
    jobs: list[JobDocument]
    """By their numbers."""
    next: str | None
    """``cursor`` of the next page; ``null``: this is the last."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Which jobs are asked for; empty: all."""

    user: str = ""
    partition: str = ""
    state: str = ""
    """``pending`` or ``running``."""
    owner: str = ""
    """If set: only this user's jobs, whatever else is asked for."""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Some jobs of the queue, and how many there are in all."""

    jobs: list[JobDocument]
    total: int
    last: int
    """The place of the last one; a page that continues begins after it."""
    more: bool


def queue_page(
    snapshot: Snapshot, sought: Sought, after: int, most: int, shown_of: Callable[[str], bool]
) -> QueuePage:
    """The ``most`` jobs after a place, with the names of those users' for whom ``shown_of`` says so.

    Rows of other jobs are looked at as columns only.
    """
    places, rows = [], []
    for columns, running in ((snapshot.pending, False), (snapshot.running, True)):
        found = np.flatnonzero(_matching(columns, sought, snapshot, running=running))
        places.append(columns.job_id[found] * 2 + running)
        rows.append(found)
    place, row = np.concatenate(places), np.concatenate(rows)
    (left,) = np.nonzero(place > after)
    if len(left) > most + 1:  # the first ones, without sorting the others
        left = left[np.argpartition(place[left], most)[: most + 1]]
    page = left[np.argsort(place[left])]
    shown = page[:most]
    jobs = _documents(place[shown], row[shown], snapshot, shown_of)
    return QueuePage(jobs, len(place), int(place[shown[-1]]) if len(shown) else after, len(page) > most)


def _matching(columns: JobColumns, sought: Sought, snapshot: Snapshot, *, running: bool) -> NDArray[np.bool_]:
    state = "running" if running else "pending"
    mask = np.full(len(columns), sought.state in ("", state))
    for user in filter(None, (sought.user, sought.owner)):
        code = code_of(user, snapshot.users)
        mask &= columns.user == (code if code is not None else -2)
    if sought.partition:
        # A pending job may name several partitions, comma-separated.
        names = snapshot.partition_names
        codes = [code for code, name in enumerate(names) if sought.partition in name.split(",")]
        mask &= np.isin(columns.partition, codes)
    return mask


def _documents(
    places: NDArray[np.int64], rows: NDArray[np.int64], snapshot: Snapshot, shown_of: Callable[[str], bool]
) -> list[JobDocument]:
    found: dict[int, JobDocument] = {}
    for columns, running in ((snapshot.pending, False), (snapshot.running, True)):
        of_state = places % 2 == running
        mine = rows[of_state].tolist()
        labels = labels_of(columns, mine, snapshot, shown_of)
        documents = job_documents(columns, mine, snapshot, labels, running=running)
        found |= zip(np.flatnonzero(of_state).tolist(), documents, strict=True)
    return [found[at] for at in range(len(rows))]
