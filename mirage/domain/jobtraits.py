"""Traits of jobs besides size and time limit that decide how long they wait: account, QOS, generic resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.gresclass import NO_GRES
from mirage.domain.job import ABSENT
from mirage.domain.jobtable import Names

if TYPE_CHECKING:
    from collections.abc import Sequence

Int64 = NDArray[np.int64]
GresColumns = tuple[Names, Int64]
"""Kinds, and how many of the first a node has."""
SizeColumns = tuple[Int64, Int64]
"""CPUs and megabytes over all nodes of each job."""


@dataclass(frozen=True, slots=True)
class JobTraits:
    """Columns of equal length; a code of -1 and a count of ``ABSENT``: not known."""

    account: Names
    qos: Names
    gres: Names
    """Kinds as ``gres_class`` writes them, such as ``gpu:a100`` and ``none``."""
    gres_per_node: Int64
    """Number of GRES of the first kind per node."""

    @classmethod
    def unknown(cls, count: int) -> JobTraits:
        """Traits of ``count`` jobs of which nothing is known."""
        absent = Names.absent(count)
        return cls(absent, absent, *unknown_gres(count))

    def __len__(self) -> int:
        return len(self.gres_per_node)

    def take(self, rows: NDArray[Any] | slice) -> JobTraits:
        """The chosen rows, in that order."""
        account, qos, gres = (
            Names(column.codes[rows], column.vocabulary) for column in (self.account, self.qos, self.gres)
        )
        return JobTraits(account, qos, gres, self.gres_per_node[rows])

    def followed_by(self, other: JobTraits) -> JobTraits:
        """Return the rows of this table, then those of ``other``."""
        pairs = ((self.account, other.account), (self.qos, other.qos), (self.gres, other.gres))
        account, qos, gres = (Names.encode([*first.decode(), *second.decode()]) for first, second in pairs)
        return JobTraits(account, qos, gres, np.concatenate([self.gres_per_node, other.gres_per_node]))


def unknown_gres(count: int) -> GresColumns:
    """The generic resources of ``count`` jobs of which they are not known."""
    return Names.absent(count), np.full(count, ABSENT, dtype=np.int64)


def unknown_sizes(count: int) -> SizeColumns:
    """CPUs and memory of ``count`` jobs of which they are not known."""
    return np.full(count, ABSENT, dtype=np.int64), np.full(count, ABSENT, dtype=np.int64)


def gres_columns(found: Sequence[tuple[str, int]]) -> GresColumns:
    """The ``gres_class`` of each job. Unknown where no job has any: perhaps Slurm does not record them."""
    if all(kinds == NO_GRES for kinds, _ in found):
        return unknown_gres(len(found))
    return Names.encode([kinds for kinds, _ in found]), np.array([count for _, count in found], dtype=np.int64)
