"""Files checked in background threads: a file system that hangs stops only the checks of its files.

A probe for each mount point finds the file systems that do not answer.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, TypeAlias

from mirage.backends.file_check import Viewer, check_files
from mirage.domain.files import NOT_CHECKED, FileState, Presence, WatchedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

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


if TYPE_CHECKING:
    Check: TypeAlias = Callable[[str, tuple[str, ...]], tuple[FileState, ...]]
    """The states of some files of one owner, in order; may take long, and never raises for a file's sake."""

_LOG = logging.getLogger(__name__)

MOST_AT_ONCE = 64
"""Files in one check."""


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Bounds of the checks; seconds."""

    threads: int = 8
    timeout: float = 5.0
    """A check that takes longer counts as hanging."""
    at_once: float = 0.25
    """Maximum waiting time of ``refresh``, s."""
    every: float = 0.0
    """A file is not checked again sooner."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some files of one owner on one file system."""

    owner: str
    place: str
    files: tuple[WatchedFile, ...]


_LIMITS = CheckLimits()


class BackgroundFiles:
    """The port ``Files`` over a check that may hang; safe to use from any thread.

    At most one check per owner is running. While it hangs, that owner's other files have to wait; those of others
    wait only for a file system that itself does not answer. Hanging checks are few, since each keeps its thread.
    """

    def __init__(
        self,
        check: Check,
        place_of: Callable[[str], str] = lambda path: "",
        limits: CheckLimits = _LIMITS,
        stopwatch: Callable[[], float] = time.monotonic,
        probe: Callable[[str], None] = probe_mount,
    ) -> None:
        self._check, self._place_of, self._limits, self._stopwatch = check, place_of, limits, stopwatch
        self._changed = Condition()
        self._wanted: frozenset[WatchedFile] = frozenset()
        self._asked: Counter[WatchedFile] = Counter()
        self._known: dict[WatchedFile, tuple[float, FileState]] = {}
        self._since: dict[WatchedFile, float] = {}
        """Files of which only a check counts that began at this time or later."""
        self._pending: list[_Batch] = []
        self._running: dict[str, tuple[float, _Batch]] = {}
        self._threads = 0
        self._probes = MountProbes(probe, self._changed, self._go_on, limits.timeout, stopwatch)

    def refresh(self, wanted: Collection[WatchedFile], anew: Collection[WatchedFile] = ()) -> None:
        """Start to check these files and forget all others; wait a moment for results that come immediately."""
        with self._changed:
            self._wanted = frozenset(wanted)
            self._forget()
            now = self._stopwatch()
            for file in anew:
                self._known.pop(file, None)
                self._since[file] = now
            due = [
                f
                for f in dict.fromkeys(wanted)
                if f not in self._known or now - self._known[f][0] >= self._limits.every
            ]
            asked = [file for batch in self._pending for file in batch.files if file in self._asked]
            self._pending = _batches([*asked, *due], self._place_of)
            self._start()
            self._changed.wait_for(self._is_settled, self._limits.at_once)

    def state(self, file: WatchedFile) -> FileState:
        """Return what the last check found; ``UNKNOWN`` before the first, and while the file system hangs."""
        with self._changed:
            if hanging := self._hanging_for(file):
                return FileState(Presence.UNKNOWN, hanging)
            return self._known.get(file, (0.0, NOT_CHECKED))[1]

    def ask(self, files: Collection[WatchedFile], patience: float) -> tuple[FileState, ...]:
        """The states of these files by a new check, as far as it is over within ``patience`` seconds."""
        with self._changed:
            began = self._stopwatch()
            self._asked.update(files)
            self._pending += _batches(files, self._place_of)
            self._start()
            self._changed.wait_for(lambda: all(self._known.get(f, (-1.0,))[0] >= began for f in files), patience)
            states = tuple(self.state(file) for file in files)
            self._asked -= Counter(files)
            self._forget()
            return states

    def hanging(self) -> int:
        """Number of overdue checks and file system probes."""
        with self._changed:
            return len(self._overdue()) + len(self._probes.hanging())

    # All below hold the lock, but for the work itself.

    def _forget(self) -> None:
        self._known = {f: seen for f, seen in self._known.items() if f in self._wanted or f in self._asked}
        self._since = {f: since for f, since in self._since.items() if f in self._wanted}

    def _overdue(self) -> list[_Batch]:
        now = self._stopwatch()
        return [batch for began, batch in self._running.values() if now - began > self._limits.timeout]

    def _hanging_for(self, file: WatchedFile) -> str:
        """Why the file cannot be checked now; empty: it can. Names no other owner's file."""
        overdue, seconds = self._overdue(), f"{self._limits.timeout:g} s"
        if hung := self._probes.hanging():
            place = self._place_of(file.path)
            if place in hung:
                return f"{file.path}: the file system on {place} hangs: no answer within {seconds}"
        for batch in overdue:
            if batch.owner == file.owner:
                return f"{batch.files[0].path}: no result within {seconds}; its file system may hang"
        if len(overdue) >= self._limits.threads:
            return f"{file.path}: not checked while {len(overdue)} other checks hang; see mirage doctor"
        return ""

    def _is_settled(self) -> bool:
        """Whether nothing is left for which waiting a moment helps."""
        now, at_once = self._stopwatch(), self._limits.at_once
        if any(now - began <= at_once for began, _ in self._running.values()):
            return False
        if self._threads >= self._limits.threads or not self._pending:
            return True
        return self._startable() is None and not any(self._probes.waits(b.place, at_once) for b in self._pending)

    def _startable(self) -> _Batch | None:
        ready = (b for b in self._pending if b.owner not in self._running and self._probes.allows(b.place))
        return next(ready, None)

    def _take(self) -> _Batch | None:
        batch = self._startable()
        if batch is not None:
            self._pending.remove(batch)
            self._running[batch.owner] = (self._stopwatch(), batch)
        return batch

    def _start(self) -> None:
        for place in dict.fromkeys(batch.place for batch in self._pending if batch.owner not in self._running):
            self._probes.ask(place)
        while self._threads < self._limits.threads and (batch := self._take()) is not None:
            self._threads += 1
            Thread(target=self._work, args=(batch,), name="files", daemon=True).start()

    def _work(self, batch: _Batch) -> None:
        following: _Batch | None = batch
        while following is not None:
            states = self._checked(following)
            with self._changed:
                following = self._note(following, states)

    def _checked(self, batch: _Batch) -> tuple[FileState, ...]:
        try:
            return self._check(batch.owner, tuple(file.path for file in batch.files))
        except Exception:
            _LOG.exception("event=internal_error text=%r user=%s", "file check: bug in Mirage", batch.owner)
            bug = FileState(Presence.UNKNOWN, "internal error (bug in Mirage); the daemon's log has the traceback")
            return (bug,) * len(batch.files)

    def _note(self, batch: _Batch, states: tuple[FileState, ...]) -> _Batch | None:
        """Keep the results; what this thread checks next."""
        now, (began, _) = self._stopwatch(), self._running.pop(batch.owner)
        for file, state in zip(batch.files, states, strict=True):
            too_early = began < self._since.get(file, began)  # the check that counts is pending
            if not too_early and (file in self._wanted or file in self._asked):
                self._known[file] = (now, state)
        following = self._take()
        if following is None:
            self._threads -= 1
        self._go_on()  # its end may have freed more than one
        return following

    def _go_on(self) -> None:
        self._start()
        self._changed.notify_all()


def local_files(limits: CheckLimits = _LIMITS) -> BackgroundFiles:
    """Files as this process sees them, each for its owner's eyes."""
    return BackgroundFiles(_check_here, MountPoints(), limits)


def _check_here(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
    try:
        viewer = Viewer.of(owner)
    except (KeyError, ValueError):
        unknown = FileState(Presence.UNKNOWN, f"{owner}: no user of this machine, so no file can be theirs")
        return (unknown,) * len(paths)
    except OSError as error:
        return (FileState(Presence.UNKNOWN, f"{owner}: {error}"),) * len(paths)
    return check_files(paths, viewer)


def _batches(files: Iterable[WatchedFile], place_of: Callable[[str], str]) -> list[_Batch]:
    groups: defaultdict[tuple[str, str], list[WatchedFile]] = defaultdict(list)
    for file in files:
        groups[file.owner, place_of(file.path)].append(file)
    return [
        _Batch(owner, place, tuple(group[first : first + MOST_AT_ONCE]))
        for (owner, place), group in groups.items()
        for first in range(0, len(group), MOST_AT_ONCE)
    ]
