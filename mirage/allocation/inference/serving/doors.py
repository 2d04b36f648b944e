"""Admission: whether new requests are accepted, and where they go if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.inference.serving.upstream import Upstream

_ASK_AGAIN = 5.0
ELSEWHERE = b"x-mirage-elsewhere"
"""Header of the answers of a closed gateway: a reverse proxy then asks the next gateway."""


class Closed(Refusal):
    """The gateway accepts no more requests."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return super().headers | {ELSEWHERE.decode(): "true"}


class Doors:
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
