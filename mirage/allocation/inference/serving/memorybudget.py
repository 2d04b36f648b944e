"""A budget of bytes, or places, shared among the senders of all current requests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator


class MemoryBudget:
    """For one event loop.

    One sender may hold as many bytes as are left free, so that there is always room for another: a single sender
    half of all, each of two a third.
    """

    def __init__(self, most: int, full: str = "current requests use too much memory") -> None:
        """``most``: bytes in total. ``full``: the reason given when there is no room."""
        self._most, self._total, self._full = most, 0, full
        self._held: dict[Hashable, int] = {}

    @contextmanager
    def reserved(self, owner: Hashable) -> Iterator[Reservation]:
        """A hold that starts empty; all of it is released at the end."""
        reservation = Reservation(self, owner)
        try:
            yield reservation
        finally:
            reservation.resize(0)

    def change(self, owner: Hashable, size: int) -> None:
        """Change what a sender holds by ``size`` bytes. Raises ``Refusal`` where there is no room."""
        held, total = self._held.get(owner, 0) + size, self._total + size
        if size > 0 and held > self._most - total:
            raise Refusal(503, f"{self._full}; retry later", 1)
        self._total = total
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)


class Reservation:
    """The bytes that one request holds."""

    def __init__(self, budget: MemoryBudget, owner: Hashable) -> None:
        self._budget, self._owner, self._size = budget, owner, 0

    def resize(self, size: int) -> None:
        """Hold this number of bytes. Raises ``Refusal`` without a change."""
        self._budget.change(self._owner, size - self._size)
        self._size = size
