"""Bytes that all requests hold at once, or places, shared among those who send them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator


class MemoryBudget:
    """For one event loop.

    One sender may hold as many bytes as are left free, so that there is always room for another: alone half of
    all, one of two a third.
    """

    def __init__(self, most: int, full: str = "requests that are here hold too many bytes") -> None:
        """``most``: bytes of all. ``full``: what is wrong where there is no room."""
        self._most, self._total, self._full = most, 0, full
        self._held: dict[Hashable, int] = {}

    @contextmanager
    def reserved(self, owner: Hashable) -> Iterator[Reservation]:
        """Nothing at first; all of it is given back in the end."""
        reservation = Reservation(self, owner)
        try:
            yield reservation
        finally:
            reservation.resize(0)

    def change(self, owner: Hashable, size: int) -> None:
        """Hold ``size`` bytes more, or fewer. Raises ``Refusal`` where there is no room."""
        held, total = self._held.get(owner, 0) + size, self._total + size
        if size > 0 and held > self._most - total:
            raise Refusal(503, f"{self._full}: send it again later", 1)
        self._total = total
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)


class Reservation:
    """What one request holds."""

    def __init__(self, budget: MemoryBudget, owner: Hashable) -> None:
        self._budget, self._owner, self._size = budget, owner, 0

    def resize(self, size: int) -> None:
        """From now on so many bytes. Raises ``Refusal``, and holds what it did."""
        self._budget.change(self._owner, size - self._size)
        self._size = size
