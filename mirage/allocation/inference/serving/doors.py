"""Whether new requests are let in, and where they go if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.inference.serving.upstream import Upstream

_ASK_AGAIN = 5.0
ELSEWHERE = b"x-mirage-elsewhere"
"""Goes with the answer of a gateway that answers nothing more: a front asks the next one."""


class Closed(Refusal):
    """Nobody is let in any more."""

    @property
    def headers(self) -> dict[str, str]:
        """Those that go with it."""
        return super().headers | {ELSEWHERE.decode(): "true"}


class Doors:
    """Open at first; then requests continue to a successor, or are rejected."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.successor: Upstream | None = None
        self.draining = False
        self.passing = 0
        """Requests that the successor answers just now."""
        self.forwarded_at = 0.0
        """When a request continued to the successor last."""

    @property
    def open(self) -> bool:
        """Whether requests are answered here."""
        return not self.draining

    def drain(self, successor: Upstream | None) -> None:
        """From now on nothing new is begun here."""
        self.draining = True
        self.forwarded_at = self._clock()
        if successor is not None:
            self.successor = successor

    def way_on(self) -> Upstream | None:
        """The successor that answers instead; ``None``: we do. Raises ``Closed`` where nobody does.

        Where there is one, ``passed`` is due.
        """
        if self.open:
            return None
        if self.successor is None:
            raise Closed(503, "this gateway is about to end, and none has taken over yet", _ASK_AGAIN)
        self.forwarded_at = self._clock()
        self.passing += 1
        return self.successor

    def passed(self) -> None:
        """The successor has answered."""
        self.passing -= 1
