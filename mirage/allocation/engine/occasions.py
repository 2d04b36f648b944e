"""When it is decided again who runs: as in the simulated pool, after whatever has happened, and each quantum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(slots=True)
class Occasions:
    """What was seen as it was last decided."""

    quantum: float = math.inf
    """Seconds after which it is decided again though nothing has happened."""
    _seen: Hashable = None
    _at: float = -math.inf

    def is_due(self, now: float, seen: Hashable) -> bool:
        """Whether anything has happened, or a quantum is over."""
        return seen != self._seen or now >= self.next_instant

    def note(self, now: float, seen: Hashable) -> None:
        """It was decided; ``seen`` is how things stand since then."""
        self._at, self._seen = now, seen

    @property
    def next_instant(self) -> float:
        """When a quantum is over."""
        return self._at + self.quantum
