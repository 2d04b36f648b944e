"""When the loop runs: on a grid of simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


class SteppedTime(Protocol):
    """A clock that the caller moves, and that reports when one of our links has changed."""

    def now(self) -> Seconds:
        """Seconds since the Unix epoch."""

    def advance(self, until: Seconds) -> None:
        """Let everything happen that is due until then."""

    def link_states(self) -> tuple[int, ...]:
        """The states of our own jobs, cheap; they differ when something happened to one."""


class SimulatedTicks:
    """Times ``origin + k * tick``, and the loop's own wake-ups between them.

    While no chain awaits a decision the cycles in which none of its links changed are left out: they would
    find nothing to do, so the outcomes are the same and the replay is faster.
    """

    def __init__(self, time: SteppedTime, tick: Seconds, until: Seconds) -> None:
        self._time = time
        self._tick = tick
        self._until = until
        self._origin = time.now()

    def wait(self, wake: Seconds, deciding: bool) -> bool:
        """Advance the simulation to the next cycle; ``False`` once that would be after ``until``."""
        before = () if deciding else self._time.link_states()
        while self._step(wake):
            if deciding or self._time.now() == wake or self._time.link_states() != before:
                return True
        return False

    def _step(self, wake: Seconds) -> bool:
        now = self._time.now()
        following = self._origin + ((now - self._origin) // self._tick + 1) * self._tick
        target = min(following, wake)
        if target > self._until:
            return False
        self._time.advance(target)
        return True
