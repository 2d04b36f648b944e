"""The part of each user's priority that fair share adds, as far as waiting jobs show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shares:
    """Part of the priority that differs by user, and one value for all other users."""

    users: Int64
    """Numbers, ascending."""
    given: Floats
    """Priority of each of them."""
    others: float
    """Priority of all others."""

    @classmethod
    def none(cls) -> Shares:
        """The same priority, 0, for all users."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), 0.0)

    @classmethod
    def seen(cls, users: Int64, priority: Floats) -> Shares:
        """The mean of each user's jobs, and for others that of all; ``nan`` in ``priority`` says nothing."""
        known = ~np.isnan(priority)
        if not known.any():
            return cls.none()
        numbers, place = np.unique(users[known], return_inverse=True)
        return cls(
            numbers, np.bincount(place, priority[known]) / np.bincount(place), float(priority[known].mean())
        )

    @classmethod
    def known(cls, user: int, priority: float) -> Shares:
        """The share of one user; the same as ``none`` where ``priority`` is ``nan``."""
        return cls.seen(np.array([user], dtype=np.int64), np.array([priority]))

    def beside(self, better: Shares) -> Shares:
        """The same, but with the values of ``better`` for its users. Others as here, unless this has no users."""
        kept = ~np.isin(self.users, better.users)
        users = np.append(self.users[kept], better.users)
        given, order = np.append(self.given[kept], better.given), np.argsort(users)
        return Shares(users[order], given[order], self.others if len(self.users) else better.others)

    def of(self, users: ArrayLike) -> Floats:
        """Priority by user of jobs of these users; shape of ``users``."""
        asked = np.asarray(users)
        if not len(self.users):
            return np.full(asked.shape, self.others)
        place = np.minimum(np.searchsorted(self.users, asked), len(self.users) - 1)
        found: Floats = np.where(self.users[place] == asked, self.given[place], self.others)
        return found
