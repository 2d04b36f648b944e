"""Waiting requests as the columns of a view, in order of arrival and without empty rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST = 64
_TYPES = {"request": np.int64, "model": np.int32, "tenant": np.int32}
"""Columns that are not float64."""


class Waiter(NamedTuple):
    """One waiting request; the names are those of ``SystemView``."""

    request: int
    model: int
    tenant: int
    arrival: float
    deadline: float
    weight: float
    ready_since: float
    served: float


class Waiting:
    """Rows that are added at the end, or returned to their place, and removed anywhere."""

    def __init__(self) -> None:
        self._count = 0
        self._columns = {name: np.empty(_FIRST, _TYPES.get(name, np.float64)) for name in Waiter._fields}
        self._waiters = dict[int, Waiter]()
        """Numbers of the requests, by row."""

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> NDArray[np.generic]:
        """A borrowed array, valid until the next change."""
        return self._columns[name][: self._count]

    def find(self, request: int) -> int | None:
        """The row of a request."""
        row = int(np.searchsorted(self.column("request"), request))
        return row if row < self._count and self._columns["request"][row] == request else None

    def put(self, waiter: Waiter) -> None:
        """Insert a request at its place by number."""
        if self._count == len(self._columns["request"]):
            self._columns = {name: np.resize(column, 2 * self._count) for name, column in self._columns.items()}
        at = self._place(waiter.request)
        for column, value in zip(self._columns.values(), waiter, strict=True):
            if at < self._count:
                column[at + 1 : self._count + 1] = column[at : self._count]
            column[at] = value
        self._waiters[waiter.request] = waiter
        self._count += 1

    def take(self, rows: NDArray[np.integer]) -> list[Waiter]:
        """Remove rows, which are unique; returns them in the order of the argument."""
        taken = [self._waiters.pop(number) for number in self.column("request")[rows].tolist()]
        if len(taken) in (0, self._count):
            self._count -= len(taken)
            return taken
        keep = np.ones(self._count, np.bool_)
        keep[rows] = False
        left = self._count - len(taken)
        for column in self._columns.values():
            column[:left] = column[: self._count][keep]
        self._count = left
        return taken

    def _place(self, request: int) -> int:
        """The row for a number; usually the last row."""
        if not self._count or self._columns["request"][self._count - 1] < request:
            return self._count
        return int(np.searchsorted(self.column("request"), request))
