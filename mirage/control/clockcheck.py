"""Keeps the daemon's clock in step with slurmctld's: every time in the queue, and every limit, is by that one.

By a clock that is hours ahead each link would seem to have ended as soon as it starts, and its successor would end
it; by one that is behind all come late.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.wallclock import CorrectedClock
    from mirage.domain.job import Seconds

_LOG = logging.getLogger(__name__)

_EVERY, _AGAIN = 600.0, 60.0
"""Real seconds after which the controller is asked again, and where it did not answer."""


class ClockCheck:
    """Asks the controller from time to time, and as soon as this machine's clock was set."""

    def __init__(
        self,
        clock: CorrectedClock,
        ask: Callable[[], Seconds],
        slack: Seconds = 60,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask``: the controller's time, raises ``ClusterUnavailable``; ``slack``: seconds that are let be."""
        self._clock, self._ask, self._slack, self._monotonic = clock, ask, slack, monotonic
        self._due = -1.0

    def check(self, *, jumped: bool = False) -> Seconds:
        """Query the controller's time if that is due, and correct the clock; return the correction, s.

        Waits for Slurm.
        """
        if not jumped and self._monotonic() < self._due:
            return 0
        before = self._clock.now()
        try:
            theirs = self._ask()
        except MirageError as error:
            _LOG.info("event=controller_time_unavailable error=%r", str(error))
            self._due = self._monotonic() + _AGAIN
            return 0
        self._due = self._monotonic() + _EVERY
        # It read its clock between these two times; only what that does not explain is wrong.
        by = max(theirs - self._clock.now(), 0) or min(theirs - before, 0)
        if abs(by) <= self._slack:
            return 0
        self._clock.correct(by)
        text = "event=clock_corrected seconds=%d text=%r"
        way = "behind" if by > 0 else "ahead of"
        advice = f"this machine's clock was {way} Slurm's; run chrony or ntpd on both machines, see mirage doctor"
        _LOG.warning(text, by, advice, extra={"always": True})
        return by
