"""What the queue's jobs are called and whose account they are on: for people to read, no decision's affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import Names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Columns of equal length, in any order; the tasks of a pending array have one row."""

    job_id: NDArray[np.int64]
    name: Names
    account: Names

    @classmethod
    def of_texts(cls, job_id: NDArray[np.int64], names: Iterable[str], accounts: Iterable[str]) -> JobLabels:
        """From one text a job; empty: it has none."""
        return cls(job_id, Names.encode(list(names)), Names.encode(list(accounts)))

    @classmethod
    def none(cls) -> JobLabels:
        """Nothing is known."""
        return cls(np.empty(0, dtype=np.int64), Names.absent(0), Names.absent(0))

    def of(self, wanted: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Name and account of these jobs, by their ids; those that are not known are left out."""
        ids = np.fromiter(wanted, dtype=np.int64)
        rows = np.flatnonzero(np.isin(self.job_id, ids)).tolist()
        return {int(self.job_id[row]): (self.name[row], self.account[row]) for row in rows}
