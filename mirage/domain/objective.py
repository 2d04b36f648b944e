"""The one place where an interruption and an overlap become a number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Weights:
    """Prices of a second of interruption and of overlap (Mirage's e_I and e_O)."""

    interruption: float = 1.0
    overlap: float = 1.0

    @property
    def critical_level(self) -> float:
        """The quantile of the start time at which the expected cost is least.

        Starting later than predicted costs e_I a second, earlier e_O: the newsvendor's ratio
        e_I / (e_I + e_O) (Arrow, Harris & Marschak, Econometrica 19, 1951). Equal prices: the median.
        """
        if self.interruption == self.overlap:
            return 0.5
        return self.interruption / (self.interruption + self.overlap)


class AimKind(StrEnum):
    """Kinds of objectives that the owner of a chain may choose."""

    CHEAPEST = "cheapest"
    """The least expected cost, by ``Weights``."""
    NO_INTERRUPTION = "no-interruption"
    """That many handovers without an interruption, and no more overlap than that takes."""
    OVERLAP = "overlap"
    """No more expected overlap than this, and as little interruption as that allows."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Objective of a chain's handovers."""

    kind: AimKind = AimKind.CHEAPEST
    """The criterion by which handovers are measured."""
    value: float = 0.0
    """NO_INTERRUPTION: a chance, within 0 and 1. OVERLAP: seconds."""


CHEAPEST = Aim()
"""The objective without any configuration."""


def objective(outcome: Outcome, weights: Weights) -> float:
    """-(e_I I + e_O O) in weighted seconds: 0 is perfect, less is worse."""
    return -(weights.interruption * outcome.interruption + weights.overlap * outcome.overlap)
