"""Whether the daemon's clock and slurmctld's agree: measured and corrected, and as far as snapshots disprove it.

Every time in the queue, and every limit, is by slurmctld's clock. By a clock that is hours ahead each link
would seem to have ended as soon as it starts, and its successor would end it; by one that is behind all come
late.

Times in a snapshot are Slurm's. What has happened is not in Slurm's future, so a time later than the daemon's
clock proves that clock to be behind. No job is submitted before it is sent, so a link that Slurm received
earlier proves it to be ahead. Both are lower bounds of the difference, so nothing is corrected by them. Nor is
a decision deferred: that would interrupt a chain, and one writer rests on Slurm's dependencies. Each decision
states it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.journal import Entry, EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirage.control.clocks import CorrectedClock
    from mirage.control.stores import ChangedEntries
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot

_HOUR = 3_600
_STEPS = (60, 120, 300, 600, 1_200, 1_800)
_CLOCK = "this machine's clock"
_REMEDY = "run chrony or ntpd on both machines; see mirage doctor"


class ClockWatch:
    """Compare the clocks once per cycle; ``text`` describes a difference, and is empty if there is none."""

    def __init__(self, journal: ChangedEntries, slack: Seconds) -> None:
        """``slack``: tolerated difference, in seconds of Slurm's clock."""
        self._journal = journal
        self._slack = slack
        self._behind: tuple[Seconds, Seconds] = (0, 0)
        """Time and size of the largest recent lag of this clock."""
        self._last: Seconds = 0
        self._set_back: Seconds = 0
        """Links submitted up to this time are ignored: this clock has been set back since."""
        self.text = ""

    def compare(self, snapshot: Snapshot, records: Sequence[ChainRecord], now: Seconds) -> None:
        """Take note of a snapshot that has just been read at ``now``."""
        newest, before = latest_event(snapshot), self.text
        ahead = self._ahead(snapshot, records, now)
        if behind := self._most_behind(newest, now):
            self.text = f"{_CLOCK} is at least {_floor(behind)} behind Slurm's, so links come late; {_REMEDY}"
        elif ahead and now - newest > self._slack:
            self.text = f"{_CLOCK} is at least {_floor(ahead)} ahead of Slurm's, so links come early; {_REMEDY}"
        else:
            self.text = ""
        if self.text:
            self._journal.write(Entry(now, None, EntryKind.TROUBLE, self.text))
        elif before:
            text = f"{_CLOCK} no longer seems to differ from Slurm's"
            self._journal.write(Entry(now, None, EntryKind.EVENT, text))

    def _most_behind(self, newest: Seconds, now: Seconds) -> Seconds:
        """Return the largest lag of the last hour: on a quiet cluster few times are new."""
        since, most = self._behind
        if not since <= now <= since + _HOUR:
            most = 0
        if newest - now > max(self._slack, most):
            most = newest - now
            self._behind = (now, most)
        return most

    def _ahead(self, snapshot: Snapshot, records: Sequence[ChainRecord], now: Seconds) -> Seconds:
        """By the link sent last; 0: it shows nothing, as do held links, which their owner has submitted before."""
        sent = list(_sent(snapshot, records))
        if self._last - now > self._slack:
            self._set_back = max(self._set_back, self._last)
        self._set_back = max(self._set_back, *(planned for planned, _ in sent if planned > now), 0)
        self._last = now
        trusted = [each for each in sent if each[0] > self._set_back]
        ahead = max(trusted)[1] if trusted and snapshot.stock is None else 0
        return ahead if ahead > self._slack else 0


def latest_event(snapshot: Snapshot) -> Seconds:
    """The latest time in the snapshot that has certainly come; ``ABSENT``: it shows none."""
    columns = (snapshot.pending.submit, snapshot.running.submit, snapshot.running.start)
    found = [int(column.max()) for column in columns if len(column)]
    for job in (*snapshot.links.values(), *snapshot.rivals):
        found.append(job.submit)
        if job.state is not JobState.PENDING:
            found.append(job.start)
        if job.state.finished:
            found.append(job.end)
    return max(found, default=ABSENT)


def _sent(snapshot: Snapshot, records: Sequence[ChainRecord]) -> Iterator[tuple[Seconds, Seconds]]:
    """Yield when each link was sent by this clock, and how much earlier Slurm received it by its clock.

    One that was sent again says nothing: the job may be that of the first time.
    """
    for record in records:
        for link in record.live:
            job = snapshot.link(link.tag, record.chain.owner)
            again = link.index == record.resent
            if not again and job is not None and job.job_id == link.job_id and job.submit != ABSENT:
                yield link.planned, link.planned - job.submit


def _floor(seconds: Seconds) -> str:
    """In steps: a text that changes with each cycle would be written each time."""
    if seconds >= _HOUR:
        return f"{seconds // _HOUR} h"
    return f"{max((step for step in _STEPS if step <= seconds), default=60) // 60} min"


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
