"""The poll interval: its jitter, and how it grows while Slurm is slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class Pacing:
    """The settings of a ``Pace``; intervals in Slurm's seconds."""

    interval: Seconds = 60
    jitter: float = 0.1
    """Each interval varies by up to this fraction, so that daemons do not poll at the same time."""
    longest: Seconds = 600
    slow: float = 5.0
    """Real seconds after which an answer counts as slow."""


class Pace:
    """The interval doubles with every cycle in which Slurm was slow, and comes back the same way."""

    def __init__(self, pacing: Pacing, rng: np.random.Generator) -> None:
        self.pacing = pacing
        self._rng = rng
        self._doublings = 0

    @property
    def shortest(self) -> Seconds:
        """The interval when all is well."""
        return self.pacing.interval

    @property
    def stretched(self) -> bool:
        """Whether it is slower than configured at present."""
        return self._doublings > 0

    @property
    def at_most(self) -> float:
        """Slurm's seconds that the interval has now at most."""
        return self._interval * (1 + self.pacing.jitter)

    def answered(self, seconds: float) -> None:
        """Note how long a cycle's queries took, in real seconds."""
        self._step(seconds > self.pacing.slow)

    def trouble(self) -> None:
        """A cycle could not do its work."""
        self._step(True)

    def interval(self) -> float:
        """Slurm's seconds until the next cycle."""
        return self._interval * (1 + self.pacing.jitter * float(self._rng.uniform(-1, 1)))

    @property
    def _interval(self) -> Seconds:
        longest = max(self.pacing.longest, self.pacing.interval)
        return min(self.pacing.interval << self._doublings, longest)

    def _step(self, slower: bool) -> None:
        most = max(0, (self.pacing.longest // self.pacing.interval - 1).bit_length())
        self._doublings = min(self._doublings + 1, most) if slower else max(0, self._doublings - 1)
