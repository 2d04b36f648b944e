"""Admission: whether a new request is accepted, and what its client receives if not.

A refusal has an HTTP status. A request may be refused because the bytes or places of all current requests, which
their senders share, are taken, or because the gateway is closed: then it goes to the successor.
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from mirage.allocation.inference.serving.upstream import Upstream


class RequestRefused(MirageError):
    """``status``: HTTP status; ``retry_after``: seconds after which a retry may succeed."""

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}

    @property
    def body(self) -> bytes:
        """Body of the answer, in JSON."""
        return json.dumps({"error": str(self)}).encode()


class GivenUp(RequestRefused):
    """An accepted request ends without an answer."""


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
    def reserved(self, owner: Hashable) -> Iterator[BudgetReservation]:
        """A hold that starts empty; all of it is released at the end."""
        reservation = BudgetReservation(self, owner)
        try:
            yield reservation
        finally:
            reservation.resize(0)

    def change(self, owner: Hashable, size: int) -> None:
        """Change what a sender holds by ``size`` bytes. Raises ``RequestRefused`` where there is no room."""
        held, total = self._held.get(owner, 0) + size, self._total + size
        if size > 0 and held > self._most - total:
            raise RequestRefused(503, f"{self._full}; retry later", 1)
        self._total = total
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)


class BudgetReservation:
    """The bytes that one request holds."""

    def __init__(self, budget: MemoryBudget, owner: Hashable) -> None:
        self._budget, self._owner, self._size = budget, owner, 0

    def resize(self, size: int) -> None:
        """Hold this number of bytes. Raises ``RequestRefused`` without a change."""
        self._budget.change(self._owner, size - self._size)
        self._size = size


_ASK_AGAIN = 5.0
ELSEWHERE = b"x-mirage-elsewhere"
"""Header of the answers of a closed gateway: a reverse proxy then asks the next gateway."""


class Closed(RequestRefused):
    """The gateway accepts no more requests."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return super().headers | {ELSEWHERE.decode(): "true"}


class Admission:
    """Open at first; then requests are forwarded to a successor, or rejected."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.successor: Upstream | None = None
        self.draining = False
        self.passing = 0
        """Number of forwarded requests that the successor has not answered yet."""
        self.forwarded_at = 0.0
        """When the last request was forwarded to the successor."""

    @property
    def open(self) -> bool:
        """Whether requests are answered here."""
        return not self.draining

    def drain(self, successor: Upstream | None) -> None:
        """Accept no more requests here."""
        self.draining = True
        self.forwarded_at = self._clock()
        if successor is not None:
            self.successor = successor

    def way_on(self) -> Upstream | None:
        """The successor that answers instead; ``None``: this gateway does. Raises ``Closed`` where neither does.

        Call ``passed`` once for each returned successor.
        """
        if self.open:
            return None
        if self.successor is None:
            raise Closed(503, "this gateway is ending, and no successor has taken over yet", _ASK_AGAIN)
        self.forwarded_at = self._clock()
        self.passing += 1
        return self.successor

    def passed(self) -> None:
        """Note that the successor has answered."""
        self.passing -= 1
