"""Outcome of one handover, and the one place where its interruption and overlap become a number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

ZERO_WITHIN = 60
"""Seconds up to which an interruption counts as none: Slurm's main loop runs once a minute by default
(``sched_interval``), so no policy can promise less."""


_PROMPT = 300
"""Seconds after the end of a link within which its successor counts as submitted immediately."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Seconds without a running link, had the successor been submitted only at its predecessor's end."""

    p10: Seconds
    p50: Seconds
    p90: Seconds

    @classmethod
    def certain(cls, wait: Seconds) -> Alternative:
        """Return the alternative of a wait that was observed, without uncertainty."""
        return cls(wait, wait, wait)

    def at_least(self, wait: Seconds) -> Alternative:
        """No shorter than that of a link that was submitted earlier: a later submission starts no earlier."""
        return Alternative(max(self.p10, wait), max(self.p50, wait), max(self.p90, wait))

    def __add__(self, other: Alternative) -> Alternative:
        """Quantiles added: the range of the sum of waits that are long or short together, the widest there is."""
        return Alternative(self.p10 + other.p10, self.p50 + other.p50, self.p90 + other.p90)


def submitted_at_end(submit: Seconds, end: Seconds, limit_end: Seconds) -> bool:
    """Whether a link submitted then was submitted as its predecessor ended, or was to end by its limit, or later.

    ``limit_end``: by the predecessor's limit; ``ABSENT`` where none is known. Slurm ends a job up to a minute
    after its limit, and after any ``OverTimeLimit``.
    """
    due = end if limit_end == ABSENT else min(end, limit_end)
    return submit >= due - ZERO_WITHIN


def as_submitted_at(end: Seconds, submit: Seconds, start: Seconds) -> Alternative:
    """Of a link submitted at its predecessor's ``end`` or later: it would have waited as long as it has."""
    delay = submit - end if submit > end + _PROMPT else 0
    return Alternative.certain(max(0, start - end - delay))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One handover: when the links before ended and when the successor started."""

    predecessor_end: Seconds
    """The last of the links before; the successor's own end where that is earlier."""
    successor_start: Seconds
    alternative: Alternative | None = None
    """Wait of a successor that would have been submitted at the predecessor's end; ``None``: not known."""

    @property
    def x(self) -> Seconds:
        """Signed: positive is an interruption, negative an overlap. Never both."""
        return self.successor_start - self.predecessor_end

    @property
    def interruption(self) -> Seconds:
        """Seconds between the links in which none ran; 0 for an overlap."""
        return max(0, self.x)

    @property
    def overlap(self) -> Seconds:
        """Seconds in which both links ran."""
        return max(0, -self.x)

    @property
    def saved(self) -> Alternative | None:
        """Interruption that the handover spared the service; negative: it cost some. ``None``: not known."""
        if self.alternative is None:
            return None
        waits = (self.alternative.p10, self.alternative.p50, self.alternative.p90)
        return Alternative(*(wait - self.interruption for wait in waits))


def total_saved(outcomes: Iterable[Outcome]) -> Alternative | None:
    """Savings, as far as they are known; ``None``: of no handover."""
    known = [outcome.saved for outcome in outcomes if outcome.saved is not None]
    return reduce(add, known) if known else None


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


class ObjectiveKind(StrEnum):
    """Kinds of objectives that the owner of a chain may choose."""

    CHEAPEST = "cheapest"
    """The least expected cost, by ``Weights``."""
    NO_INTERRUPTION = "no-interruption"
    """That many handovers without an interruption, and no more overlap than that takes."""
    OVERLAP = "overlap"
    """No more expected overlap than this, and as little interruption as that allows."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Objective of a chain's handovers."""

    kind: ObjectiveKind = ObjectiveKind.CHEAPEST
    """The criterion by which handovers are measured."""
    value: float = 0.0
    """NO_INTERRUPTION: a chance, within 0 and 1. OVERLAP: seconds."""


CHEAPEST = Objective()
"""The objective without any configuration."""


def objective(outcome: Outcome, weights: Weights) -> float:
    """-(e_I I + e_O O) in weighted seconds: 0 is perfect, less is worse."""
    return -(weights.interruption * outcome.interruption + weights.overlap * outcome.overlap)
