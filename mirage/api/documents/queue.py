"""The queue in the last snapshot."""

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
    """One page of the queue, sorted by job ID."""

    snapshot: str | None
    """Time of the snapshot; ``null``: none yet."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    own_only: bool
    """Whether jobs of other users are left out: Slurm's PrivateData setting hides them, or is unknown."""
    total: int
    """Number of matching jobs, on all pages."""
    jobs: list[JobDocument]
    """Jobs, sorted by job ID."""
    next: str | None
    """``cursor`` of the next page; ``null`` on the last page."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Filter of jobs; empty fields match all."""

    user: str = ""
    partition: str = ""
    state: str = ""
    """``pending`` or ``running``."""
    owner: str = ""
    """If set: only this user's jobs, in addition to the other filters."""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A page of jobs, and the total number."""

    jobs: list[JobDocument]
    total: int
    last: int
    """Position of the last job; the next page begins after it."""
    more: bool


def queue_page(
    snapshot: Snapshot, sought: Sought, after: int, most: int, shown_of: Callable[[str], bool]
) -> QueuePage:
    """Return up to ``most`` jobs after a position; job names only of users for whom ``shown_of`` is true.

    Other jobs are processed as columns only.
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
        # A pending job may name several partitions as a comma-separated list.
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
