"""Clocks, and when the loop runs: real or accelerated time with a poll interval, or a grid of simulated time.

The poll interval has jitter, and grows while Slurm is slow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage.atomic_file import read_regular
from mirage.documentreading import parse_json
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from mirage.control.commands import CommandQueue
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


@dataclass(frozen=True, slots=True)
class Pacing:
    """The settings of a ``Pace``; intervals in Slurm's seconds."""

    interval: Seconds = 60
    jitter: float = 0.1
    """Each interval varies by up to this fraction, so that daemons do not poll at the same time."""
    longest: Seconds = 600
    slow: float = 5.0
    """Real seconds after which an answer counts as slow."""
    calm: Seconds = 0
    """Interval while no chain has anything due; at least ``interval``."""


class Pace:
    """The interval doubles with every cycle in which Slurm was slow, and comes back the same way."""

    def __init__(self, pacing: Pacing, rng: np.random.Generator) -> None:
        self.pacing = pacing
        self._rng = rng
        self._doublings = 0
        self._calm = False

    def rest(self, calm: bool) -> None:
        """Note whether the next cycle may come after the calm interval."""
        self._calm = calm

    @property
    def shortest(self) -> Seconds:
        """The interval when all is well."""
        return self.pacing.interval

    @property
    def stretched(self) -> bool:
        """Whether it is slower than configured at present."""
        return self._doublings > 0

    @property
    def longest_now(self) -> Seconds:
        """The interval at most, be it stretched or calm, without its jitter."""
        return self.pacing.longest if self.stretched else max(self.pacing.interval, self.pacing.calm)

    @property
    def at_most(self) -> float:
        """Slurm's seconds that the interval has now at most."""
        return self._interval * (1 + self.pacing.jitter)

    @property
    def at_most_busy(self) -> float:
        """The same, as if no cycle were calm."""
        return self._busy * (1 + self.pacing.jitter)

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
        return max(self._busy, self.pacing.calm) if self._calm else self._busy

    @property
    def _busy(self) -> Seconds:
        longest = max(self.pacing.longest, self.pacing.interval)
        return min(self.pacing.interval << self._doublings, longest)

    def _step(self, slower: bool) -> None:
        most = max(0, (self.pacing.longest // self.pacing.interval - 1).bit_length())
        self._doublings = min(self._doublings + 1, most) if slower else max(0, self._doublings - 1)


NOTICED_JUMP = 5.0
"""Tolerated difference of the clocks, s: a larger one is corrected and logged."""

_WAKES_PER_INTERVAL = 6
"""Cycles that one user's commands may bring on in an interval, once that user has brought on many."""
_BREATH = 1.0
"""Minimum real seconds between the starts of two cycles, however many commands arrive."""


class RealTimeClock(Protocol):
    """A ``Clock`` of which it is known how fast it runs."""

    @property
    def rate(self) -> float:
        """Its seconds a real second."""

    def now(self) -> Seconds:
        """Seconds since the Unix epoch."""


class WallClock:
    """The machine's clock."""

    rate = 1.0

    def now(self) -> Seconds:
        """Seconds since the Unix epoch, UTC."""
        return int(time.time())


@dataclass(frozen=True, slots=True)
class AcceleratedClock:
    """Shows ``t0`` when the machine's clock does, and runs ``rate`` times as fast."""

    t0: float
    rate: float

    def now(self) -> Seconds:
        """Seconds since the Unix epoch, as the accelerated Slurm counts them."""
        return int(self.t0 + (time.time() - self.t0) * self.rate)


class CorrectedClock:
    """A clock to which is added what it is known to lack. Any thread reads it; one corrects it."""

    def __init__(self, clock: RealTimeClock) -> None:
        self._clock = clock
        self._added: Seconds = 0

    @property
    def rate(self) -> float:
        """As of the clock behind."""
        return self._clock.rate

    def now(self) -> Seconds:
        """Seconds since the Unix epoch."""
        return self._clock.now() + self._added

    def correct(self, by: Seconds) -> None:
        """Set it forward, or back (negative)."""
        self._added += by


_FASTEST, _LATEST = 1_000_000, 253_402_300_799


def read_clock(path: Path) -> AcceleratedClock:
    """The clock that a ``clock.json`` describes: ``{"t0": 1700000000.5, "rate": 60}``. Raises ``ConfigError``."""
    try:
        document = parse_json(read_regular(path))
        t0, rate = float(document["t0"]), float(document["rate"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        problem = f'expected a JSON object such as {{"t0": 1700000000.5, "rate": 60}}: {error!r}'
        raise ConfigError(str(path), problem) from error
    if not (0 < rate <= _FASTEST and 0 <= t0 <= _LATEST):
        problem = f"expected t0 of at least 0 and rate above 0, at most {_FASTEST}, not {t0:g} and {rate:g}"
        raise ConfigError(str(path), problem)
    return AcceleratedClock(t0, rate)


class JumpWatch:
    """Notices that the machine's clock was set: it then differs from the one that only ever runs on."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._last = wall() - monotonic()

    def jump(self) -> float:
        """Real seconds by which the clock was set since the last call: forward positive; 0 where it was not."""
        difference = self._wall() - self._monotonic()
        jump, self._last = difference - self._last, difference
        return jump if abs(jump) > NOTICED_JUMP else 0.0


def _nothing() -> None:
    pass


def _no_question() -> bool:
    return False


class WallTicks:
    """Waits in real time for the next cycle; commands cut the wait short.

    The waiting thread calls ``alive`` at least once in ``every`` real seconds: it shows that it is not stuck.
    """

    def __init__(
        self,
        clock: RealTimeClock,
        pace: Pace,
        commands: CommandQueue,
        alive: Callable[[], None] = _nothing,
        every: float = 3_600.0,
        answer: Callable[[], bool] = _no_question,
    ) -> None:
        """``answer``: answers one prediction request in the waiting thread; returns whether there was one."""
        self._answer = answer
        self._clock = clock
        self._pace = pace
        self._commands = commands
        self._alive = alive
        self._every = every
        self._stopped = False
        self._began = time.monotonic()

    def stop(self) -> None:
        """End the wait, now and indefinitely; any thread may call this."""
        self._stopped = True
        self._commands.wake()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped

    def wait(self, wake: Seconds, deciding: bool) -> bool:
        """Wait until the next poll is due, ``wake`` is reached or a command arrives; ``False`` once stopped.

        The clock may be set meanwhile: how long to wait is reckoned once, and then only measured.
        """
        del deciding  # links of ours may change at any time, and waits of others are observed too
        rate = self._clock.rate
        self._commands.wakes.every = seldom = self._pace.at_most_busy / _WAKES_PER_INTERVAL / rate
        due = min(self._pace.interval(), max(0, wake - self._clock.now())) / rate
        breath = min(_BREATH, self._pace.shortest / rate)
        # What the loop itself waits for is rare, and on a fast clock a second is long; a slow Slurm is spared.
        pause = seldom if self._pace.stretched else breath / 4
        self._sleep_until(max(self._began + pause, time.monotonic() + due), self._began + breath)
        self._began = time.monotonic()
        return not self._stopped

    def _sleep_until(self, instant: float, earliest: float) -> None:
        while not self._stopped and (left := instant - time.monotonic()) > 0:
            answered = self._answer()  # one at a time: commands come before the next
            if self._commands.wait(0.0 if answered else min(left, self._every)):
                instant = earliest
                time.sleep(0.0 if self._stopped else max(0.0, earliest - time.monotonic()))
            self._alive()
