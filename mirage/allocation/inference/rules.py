"""Rules of a simulated system beyond its units and costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Sharing(StrEnum):
    """Sharing of bandwidth when units need more than exists; see ``kernel/sharing.py``."""

    ROOFLINE = "roofline"
    """Max-min fairly; a unit that needs little is not slowed."""
    PROPORTIONAL = "proportional"
    """All units are slowed by the same factor, as in MAGMA and MoHaM."""


@dataclass(frozen=True, slots=True)
class SharingRules:
    """Sharing of bandwidth, and the cost of decisions."""

    sharing: Sharing = Sharing.ROOFLINE
    decision_seconds: float = 0.0
    """Seconds from a decision to the start of the chosen segments; their units are reserved meanwhile."""
    decision_joules: float = 0.0
    """Joules of each decision."""
    logged: bool = False
    """Whether the outcome logs the segments by unit and time."""


@runtime_checkable
class Costly(Protocol):
    """A policy that states the cost of its decisions; those of other policies are free."""

    @property
    def decision_seconds(self) -> float:
        """See ``SharingRules``."""

    @property
    def decision_joules(self) -> float:
        """See ``SharingRules``."""
