"""Past jobs: one row per job, with the series, class and owner that make jobs similar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, JobState
from mirage.domain.series import hashed_names, hashed_users, series_of

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import JobColumns, Snapshot

Int64 = NDArray[np.int64]

MOST_PAST = 200_000
"""Past jobs that are looked at: of more, the last submitted."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """By what jobs are compared, as columns of equal length."""

    series: Int64
    user: Int64
    """A number for each user, equal in the past and in the queue."""
    limit: Int64

    def __len__(self) -> int:
        return len(self.series)

    @classmethod
    def of_table(cls, table: JobTable) -> Likeness:
        """Jobs of the past."""
        users = hashed_users([*table.user.vocabulary, ""])[table.user.codes]
        names = hashed_names([*table.name.vocabulary, ""])[table.name.codes]
        return cls(series_of(users, names), users, table.limit)

    @classmethod
    def of_queue(cls, snapshot: Snapshot, jobs: JobColumns) -> Likeness:
        """Return the likeness of jobs in a snapshot."""
        return cls(jobs.series, hashed_users([*snapshot.users, ""])[jobs.user], jobs.limit)


@dataclass(frozen=True, slots=True)
class Past:
    """Jobs submitted recently, by submission."""

    now: Seconds
    table: JobTable
    like: Likeness

    @classmethod
    def of(cls, observation: Observation) -> Past:
        """The jobs of all others. Raises ``ValueError`` where the observation brings none."""
        table = observation.history
        if table is None or not len(table):
            raise ValueError("no jobs of the past are known: a look-ahead learns run times and arrivals from them")
        others = ~_same_service(table, observation)
        if len(table) > MOST_PAST or not others.all():
            table = table.take(np.flatnonzero(others)[-MOST_PAST:])
        return cls(observation.time, table, Likeness.of_table(table))

    @property
    def started(self) -> Int64:
        """Rows of the jobs that have started, in order of their starts."""
        rows = np.flatnonzero(self.table.start != ABSENT)
        ordered: Int64 = rows[np.argsort(self.table.start[rows], kind="stable")]
        return ordered

    @property
    def hit_limit(self) -> NDArray[np.bool_]:
        """Which jobs their limit ended."""
        ended: NDArray[np.bool_] = self.table.state == JobState.TIMEOUT
        return ended


def _same_service(table: JobTable, observation: Observation) -> NDArray[np.bool_]:
    """Links of the service itself: that it continues is known, and not part of the load that comes by itself."""
    request = observation.successor
    users, names = table.user.vocabulary, table.name.vocabulary
    if request.user not in users or request.name not in names:
        return np.zeros(len(table), dtype=np.bool_)
    of_user = np.asarray(table.user.codes == users.index(request.user))
    same: NDArray[np.bool_] = of_user & (table.name.codes == names.index(request.name))
    return same
