"""Scheduling triggers: task events and the preemption quantum, as in the simulated pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(slots=True)
class Occasions:
    """The state at the last decision."""

    quantum: float = math.inf
    """Seconds after which the next decision is due though nothing has happened."""
    _seen: Hashable = None
    _at: float = -math.inf

    def is_due(self, now: float, seen: Hashable) -> bool:
        """Whether the state has changed, or a quantum is over."""
        return seen != self._seen or now >= self.next_instant

    def note(self, now: float, seen: Hashable) -> None:
        """Note a decision; ``seen``: the state afterwards."""
        self._at, self._seen = now, seen

    @property
    def next_instant(self) -> float:
        """When the current quantum ends."""
        return self._at + self.quantum
