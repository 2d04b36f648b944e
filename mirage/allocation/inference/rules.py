"""What a simulated system does that its units and costs do not say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Sharing(StrEnum):
    """How units share bandwidth when they want more than there is; see ``kernel/sharing.py``."""

    ROOFLINE = "roofline"
    """Max-min fairly; whoever wants little is not slowed."""
    PROPORTIONAL = "proportional"
    """All users is slowed by the same factor, as in MAGMA and MoHaM."""


@dataclass(frozen=True, slots=True)
class SharingRules:
    """How bandwidth is shared, and what deciding costs."""

    sharing: Sharing = Sharing.ROOFLINE
    decision_seconds: float = 0.0
    """From a time of decision to the beginning of the pieces that it chose; their units are kept for them."""
    decision_joules: float = 0.0
    """Of each decision."""
    logged: bool = False
    """Whether the outcome tells who was on which unit when."""


@runtime_checkable
class Costly(Protocol):
    """A policy that says what deciding costs it; of others it costs nothing."""

    @property
    def decision_seconds(self) -> float:
        """See ``SharingRules``."""

    @property
    def decision_joules(self) -> float:
        """See ``SharingRules``."""
