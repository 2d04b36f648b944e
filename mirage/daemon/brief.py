"""A daemon without a process that lives for weeks: it runs for one cycle, or as long as a command needs it.

``mirage cycle``, called at intervals by cron, starts it and notes that in a file of the state directory. Between
two calls, commands that find no daemon start one by that file.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mirage.atomic_file import read_regular, write_atomically
from mirage.config.places import CALLS
from mirage.documentreading import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.control.status import Cycle
    from mirage.domain.job import Seconds

_LATE = 3
"""Intervals after which calls that do not come have ended."""
_LATE_AT_LEAST = 3_600.0
_DAY = 86_400.0
_SOONEST, _LATEST = 5.0, 600.0
"""Between two calls that a link makes, s."""
_USED = 5.0
"""Real seconds that it stays at least after a request: one command may send several."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Record of the calls of ``mirage cycle``. Times are epoch seconds of the machine's clock."""

    at: float
    """Time of the last call."""
    every: float
    """Seconds between two calls, as the caller says."""
    daily: float = 0.0
    """Of the last one that did the daily work."""

    def ended(self, now: float) -> bool:
        """Whether the calls have ended: several of them did not come."""
        return now - self.at > max(_LATE * self.every, _LATE_AT_LEAST)


def read_calls(state: Path) -> Calls | None:
    """The calls noted in a state directory; ``None``: there were none, or the file cannot be read."""
    try:
        found = parse_json(read_regular(state / CALLS))
        return Calls(float(found["at"]), float(found["every"]), float(found["daily"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def note_call(state: Path, every: float, *, daily: bool = False) -> None:
    """Store that a call came, and whether it did the ``daily`` work. Raises ``OSError``."""
    known, now = read_calls(state), time.time()
    done = now if daily else known.daily if known is not None else 0.0
    write_atomically(state / CALLS, json.dumps(asdict(Calls(now, every, done))).encode())


@dataclass(frozen=True, slots=True)
class Term:
    """How long a brief daemon runs."""

    every: float = 0.0
    """Real seconds until the next call: it stays for what falls due before that. 0: it is not called again."""
    linger: float = 0.0
    """Real seconds that it stays after the last request."""
    reports: bool = False
    """Whether it prints in how many real seconds the next call is due."""

    @property
    def insists(self) -> bool:
        """Whether it waits for the lease also while another one renews it: what it is called for may be new."""
        return bool(self.linger) or self.reports


class BriefRun:
    """Decides when a brief daemon ends. Any thread."""

    def __init__(
        self, term: Term, state: Path, rate: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``rate``: Slurm's seconds a real second."""
        self._term = term
        self._state = state
        self._rate = rate
        self._monotonic = monotonic
        self._began = monotonic()
        self._due: float | None = None
        """Time of the monotonic clock at which the loop has something to do; ``None``: no cycle yet."""
        self._linger, self._requests, self._asked = term.linger, 0, self._began

    def cycled(self, cycle: Cycle, now: Seconds) -> None:
        """A cycle has ended at ``now``, of Slurm's clock."""
        self._due = self._monotonic() + (cycle.wake - now) / self._rate

    def report(self) -> None:
        """Print the seconds until the next call, where it is to do so."""
        if self._term.reports:
            due = _DAY if self._due is None else self._due - self._monotonic()
            seconds = round(min(max(due, _SOONEST), _LATEST))
            print(seconds, flush=True)  # noqa: T201 - for the shell script that called; the process may end at once

    def over(self, requests: int, connections: int) -> bool:
        """Whether the daemon is to end: nothing falls due before the next call, and no client uses it.

        ``requests``: how many there have been so far; ``connections``: how many are open.
        """
        now = self._monotonic()
        if connections or requests != self._requests:
            self._requests, self._asked, self._linger = requests, now, max(self._linger, _USED)
        if self._due is None or connections or now - self._asked < self._linger:
            return False
        return self._due >= self._began + self._term.every

    @property
    def is_first_of_day(self) -> bool:
        """Whether daily work is due."""
        known = read_calls(self._state)
        return bool(self._term.every) and (known is None or abs(time.time() - known.daily) > _DAY)

    def note(self, *, daily: bool) -> None:
        """As ``note_call``, where it was one."""
        if self._term.every:
            note_call(self._state, self._term.every, daily=daily)
