"""Mount points of file systems, and which of them answer."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Condition

_MOUNTS = Path("/proc/self/mountinfo")
_MOST = 8
"""Maximum number of concurrent probes."""
_FRESH = 1.0
"""Seconds for which an answer of a file system is good."""


class MountPoints:
    """Mount points of file systems, read again after a minute; queries the kernel, never a file system."""

    def __init__(self, table: Path = _MOUNTS, stopwatch: Callable[[], float] = time.monotonic) -> None:
        self._table, self._stopwatch = table, stopwatch
        self._read = float("-inf")
        self._points: tuple[str, ...] = ()

    def __call__(self, path: str) -> str:
        """The mount point that holds ``path``, links not followed; empty: not known."""
        if self._stopwatch() - self._read > 60:
            self._points, self._read = self._table_points(), self._stopwatch()
        return max((p for p in self._points if path.startswith(p.rstrip("/") + "/")), key=len, default="")

    def _table_points(self) -> tuple[str, ...]:
        try:
            lines = self._table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return ()
        return tuple(line.split()[4].replace("\\040", " ") for line in lines)


def probe_mount(place: str) -> None:
    """Return once the file system that is mounted at ``place`` answers; an error is an answer."""
    with suppress(OSError, ValueError):
        os.statvfs(place)


class MountProbes:
    """Probes each file system from a separate thread, at no path that a user has chosen.

    That is the proof that a file system hangs: a check of a user's files may be slow for that user's own reasons.
    All but the probing itself is done under the lock ``changed``; ``answered`` is called once there is an answer.
    """

    def __init__(
        self,
        probe: Callable[[str], None],
        changed: Condition,
        answered: Callable[[], None],
        timeout: float,
        stopwatch: Callable[[], float],
    ) -> None:
        self._probe, self._changed, self._answered = probe, changed, answered
        self._timeout, self._stopwatch = timeout, stopwatch
        self._asked: dict[str, float] = {}
        """Since when an answer is waited for."""
        self._answers: dict[str, float] = {}

    def ask(self, place: str) -> None:
        """Have the file system asked, unless that is done already or no probe is left."""
        if place and place not in self._asked and not self.allows(place) and len(self._asked) < _MOST:
            self._asked[place] = self._stopwatch()
            Thread(target=self._work, args=(place,), name="mount", daemon=True).start()

    def allows(self, place: str) -> bool:
        """Whether a check may begin there: it has just answered, or it cannot be asked since all probes hang."""
        if not place or self._stopwatch() - self._answers.get(place, float("-inf")) <= _FRESH:
            return True
        return place not in self._asked and len(self._asked) >= _MOST and len(self.hanging()) >= _MOST

    def waits(self, place: str, seconds: float) -> bool:
        """Whether it was asked so recently that the answer may still come immediately."""
        return self._stopwatch() - self._asked.get(place, float("-inf")) <= seconds

    def hanging(self) -> frozenset[str]:
        """Return the mount points whose answer is overdue."""
        now = self._stopwatch()
        return frozenset(place for place, began in self._asked.items() if now - began > self._timeout)

    def _work(self, place: str) -> None:
        self._probe(place)
        with self._changed:
            del self._asked[place]
            now = self._stopwatch()
            self._answers = {each: at for each, at in self._answers.items() if now - at <= _FRESH}
            self._answers[place] = now
            self._answered()
