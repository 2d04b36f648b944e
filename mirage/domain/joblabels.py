"""What a snapshot says of jobs beside its columns: names, for people to read; accounts and GRES, for waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import Names
from mirage.domain.jobtraits import unknown_gres

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from mirage.domain.jobtraits import GresColumns


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Columns of equal length, in any order; the tasks of a pending array have one row."""

    job_id: NDArray[np.int64]
    name: Names
    account: Names
    gres: Names
    """Kinds of generic resources, as ``mirage.domain.jobtraits`` writes them; -1: not known."""
    gres_per_node: NDArray[np.int64]

    @classmethod
    def of_texts(
        cls,
        job_id: NDArray[np.int64],
        names: Iterable[str],
        accounts: Iterable[str],
        gres: GresColumns | None = None,
    ) -> JobLabels:
        """From one text a job; empty: it has none. Without ``gres``: that is not known."""
        columns = gres if gres is not None else unknown_gres(len(job_id))
        return cls(job_id, Names.encode(list(names)), Names.encode(list(accounts)), *columns)

    @classmethod
    def none(cls) -> JobLabels:
        """Nothing is known."""
        return cls(np.empty(0, dtype=np.int64), Names.absent(0), Names.absent(0), *unknown_gres(0))

    def of(self, wanted: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Name and account of these jobs, by their ids; those that are not known are left out."""
        ids = np.fromiter(wanted, dtype=np.int64)
        rows = np.flatnonzero(np.isin(self.job_id, ids)).tolist()
        return {int(self.job_id[row]): (self.name[row], self.account[row]) for row in rows}
