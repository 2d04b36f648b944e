"""How one hand-over came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """One hand-over: when the links before ended and when the successor started."""

    predecessor_end: Seconds
    """The last of the links before; the successor's own end where that is earlier."""
    successor_start: Seconds

    @property
    def x(self) -> Seconds:
        """Signed: positive is an interruption, negative an overlap. Never both."""
        return self.successor_start - self.predecessor_end

    @property
    def interruption(self) -> Seconds:
        """Seconds in which no link ran."""
        return max(0, self.x)

    @property
    def overlap(self) -> Seconds:
        """Seconds in which both links ran."""
        return max(0, -self.x)
