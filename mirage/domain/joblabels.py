"""Labels of a snapshot's jobs besides its columns: names, accounts, their part of shared nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import Names
from mirage.domain.jobtraits import unknown_gres, unknown_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from mirage.domain.jobtraits import GresColumns, SizeColumns


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Columns of equal length, in any order; the tasks of a pending array have one row."""

    job_id: NDArray[np.int64]
    name: Names
    account: Names
    gres: Names
    """Kinds of generic resources, as ``mirage.domain.jobtraits`` writes them; -1: not known."""
    gres_per_node: NDArray[np.int64]
    cpus: NDArray[np.int64]
    """Over all nodes of the job; ``ABSENT``: not known."""
    memory_mb: NDArray[np.int64]
    """The same."""

    @classmethod
    def of_texts(
        cls,
        job_id: NDArray[np.int64],
        names: Iterable[str],
        accounts: Iterable[str],
        gres: GresColumns | None = None,
        sizes: SizeColumns | None = None,
    ) -> JobLabels:
        """From one text a job; empty: it has none. Without ``gres`` or ``sizes``: they are not known."""
        columns = gres if gres is not None else unknown_gres(len(job_id))
        taken = sizes if sizes is not None else unknown_sizes(len(job_id))
        return cls(job_id, Names.encode(list(names)), Names.encode(list(accounts)), *columns, *taken)

    @classmethod
    def none(cls) -> JobLabels:
        """Return empty columns: the labels of no job are known."""
        texts = Names.absent(0), Names.absent(0)
        return cls(np.empty(0, dtype=np.int64), *texts, *unknown_gres(0), *unknown_sizes(0))

    def rows_of(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each of these jobs, by their ids; -1: nothing is known of it."""
        if not len(self.job_id):
            return np.full(len(wanted), -1, dtype=np.int64)
        order = np.argsort(self.job_id, kind="stable")
        at = order[np.minimum(np.searchsorted(self.job_id[order], wanted), len(order) - 1)]
        found: NDArray[np.int64] = np.where(self.job_id[at] == wanted, at, -1)
        return found

    def of(self, wanted: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Name and account of these jobs, by their ids; those that are not known are left out."""
        ids = np.fromiter(wanted, dtype=np.int64)
        rows = np.flatnonzero(np.isin(self.job_id, ids)).tolist()
        return {int(self.job_id[row]): (self.name[row], self.account[row]) for row in rows}
