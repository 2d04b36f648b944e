"""Replays that people ask a daemon for: one at a time, in a process of least priority, kept in a directory."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mirage.atomic_file import write_atomically
from mirage.backends.background import last_line, ran_out_of_memory, run_aside
from mirage.documentreading import parse_own_json, reader_of
from mirage.domain.errors import BadSpelling, MirageError, StoreUnavailable
from mirage.domain.job import ABSENT, Seconds
from mirage.domain.shares import find_surplus

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_GENERATED = re.compile(r"generated:([a-z0-9_-]{1,40})(:[0-9]{1,9})?")
_ID = re.compile(r"[0-9a-f]{12}")
_KEPT = 50
"""Runs that are over and kept, of all users; beyond, the users with the most lose their oldest."""
_RUN, _RESULT, _PROGRESS, _LOG = "run.json", "result.json", "progress.json", "replay.log"
_MOST_OF_ONE = 2
"""Of one user: one that runs, and one that waits."""
LARGEST_RESULT = 8 << 20
"""Bytes of a result."""
_LONGEST = 3_600.0
"""Seconds that a replay may take."""


class TooManyRuns(MirageError):
    """The queue is full: a new replay would wait too long."""


class RunState(StrEnum):
    """Progress of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    """The daemon ended before it did."""


_OVER = (RunState.DONE, RunState.FAILED, RunState.LOST)


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """Parameters of a replay; texts as ``mirage replay`` takes them."""

    trace: str
    """A file of the directory that is offered, or ``generated:PRESET:SEED``."""
    cluster: str
    """A file of that directory, or a preset; empty: the daemon's own cluster."""
    predictors: tuple[str, ...]
    nodes: int
    limit: Seconds
    start: str
    end: str
    every: Seconds
    tick: Seconds
    links: int
    partition: str


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A replay that a user has submitted, with its state and times."""

    run_id: str
    by: str
    wish: ReplaySpec
    created: Seconds
    state: RunState = RunState.QUEUED
    started: Seconds = ABSENT
    ended: Seconds = ABSENT
    problem: str = ""
    """Why it failed."""
    done: int = 0
    """Episodes played."""
    total: int = 0
    """0: not known yet."""

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in _OVER


_STORED = reader_of(ReplayJob)

Command = Callable[[ReplaySpec, Path], Sequence[str]]
"""The command that runs a request in a directory, without the names of its output files."""


class ReplayRuns:
    """Any thread may call it; a separate thread runs one replay after the other, users in turn."""

    def __init__(
        self,
        folder: Path,
        offered: Path | None,
        command: Command,
        now: Callable[[], Seconds],
        most: int,
        memory_mb: int = 0,
    ) -> None:
        """``offered``: where traces and cluster files are; ``most`` runs may wait or play at the same time.

        ``memory_mb``: MiB that one may use; 0: no bound.
        """
        self._folder, self._offered, self._command, self._now, self._most = folder, offered, command, now, most
        self._memory_mb = memory_mb
        self._lock = threading.Lock()
        self._runs = {run.run_id: run for run in sorted(_read(folder), key=lambda run: run.created)}
        self._more = threading.Event()
        self._ended = threading.Event()
        self._unwanted: set[str] = set()
        self._thread: threading.Thread | None = None

    def files(self) -> tuple[str, ...]:
        """Names of the traces and cluster files that are offered."""
        if self._offered is None or not self._offered.is_dir():
            return ()
        return tuple(
            sorted(path.name for path in self._offered.iterdir() if _FILE.fullmatch(path.name) and path.is_file())
        )

    def submit(self, wish: ReplaySpec, by: str) -> ReplayJob:
        """Queue a replay.

        Raises ``BadSpelling`` for a trace or cluster that is not offered, ``TooManyRuns``, and
        ``StoreUnavailable`` where it cannot be stored: then it is not queued.
        """
        self._check(wish)
        with self._lock:
            waiting = sum(not run.over for run in self._runs.values())
            if waiting >= self._most:
                raise TooManyRuns(f"{waiting} replays are queued or running; retry when one has ended")
            if sum(not run.over and run.by == by for run in self._runs.values()) >= _MOST_OF_ONE:
                raise TooManyRuns(
                    f"{_MOST_OF_ONE} replays of {by} are queued or running; retry when one has ended"
                )
            run = ReplayJob(secrets.token_hex(6), by, wish, self._now())
            try:
                self._write(run)
            except OSError as error:
                shutil.rmtree(self._folder / run.run_id, ignore_errors=True)
                raise StoreUnavailable(f"{self._folder}: {error.strerror}") from error
            self._runs[run.run_id] = run
            self._forget_oldest()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="replays", daemon=True)
                self._thread.start()
        self._more.set()
        return run

    def all(self) -> tuple[ReplayJob, ...]:
        """Every run that is kept, oldest first."""
        with self._lock:
            runs = tuple(self._runs.values())
        return tuple(self._with_progress(run) for run in runs)

    def of(self, run_id: str) -> ReplayJob | None:
        """Return the run with its present progress; ``None`` for an unknown ID."""
        with self._lock:
            run = self._runs.get(run_id)
        return self._with_progress(run) if run is not None else None

    def open_result(self, run: ReplayJob) -> BinaryIO | None:
        """The document that ``mirage replay --json`` wrote; ``None`` if it does not exist. The caller closes it.

        It is for sending as it is: to make objects of it takes many times its size.
        """
        if run.state is not RunState.DONE:
            return None
        try:
            file = (self._folder / run.run_id / _RESULT).open("rb")
        except OSError:
            return None
        if os.fstat(file.fileno()).st_size <= LARGEST_RESULT:
            return file
        file.close()
        return None

    def remove(self, run_id: str) -> None:
        """Forget a run; one that plays is ended first."""
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is None:
                return
            if run.state is RunState.RUNNING:
                self._unwanted.add(run_id)  # its directory goes when it has ended
            else:
                shutil.rmtree(self._folder / run_id, ignore_errors=True)

    def close(self) -> None:
        """End what plays; it is lost, as is what waits."""
        self._ended.set()
        self._more.set()
        if self._thread is not None:
            self._thread.join(15)

    def _check(self, wish: ReplaySpec) -> None:
        files = self.files()
        offered = f"there are {', '.join(files)}" if files else "no trace files are available (replays.folder)"
        from mirage.simulator.configuration.clusterfile import presets
        from mirage.trace.generator import presets as trace_presets

        generated = _GENERATED.fullmatch(wish.trace)
        if generated and generated[1] not in trace_presets():
            told = ", ".join(trace_presets())
            raise BadSpelling(wish.trace, f"no such preset of generated traces; presets: {told}")
        if not generated and wish.trace not in files:
            raise BadSpelling(wish.trace, f"no such trace: {offered}, and generated:PRESET:SEED")
        if wish.cluster and wish.cluster not in (*files, *presets()):
            raise BadSpelling(wish.cluster, f"no such cluster: {offered}; presets: {', '.join(presets())}")

    def _work(self) -> None:
        while not self._ended.is_set():
            self._more.wait()
            self._more.clear()
            while not self._ended.is_set() and (run := self._next()) is not None:
                self._played(run)

    def _next(self) -> ReplayJob | None:
        with self._lock:
            last: dict[str, Seconds] = {}
            for run in self._runs.values():
                last[run.by] = max(last.get(run.by, ABSENT), run.started)
            queued = [run for run in self._runs.values() if run.state is RunState.QUEUED]
            return min(queued, key=lambda run: last[run.by], default=None)

    def _played(self, run: ReplayJob) -> None:
        """Whatever becomes of one, the next has its turn."""
        try:
            self._play(run)
        except Exception:
            _log.exception("internal error (bug in Mirage): replay %s; report it with this traceback", run.run_id)
            problem = "internal error (bug in Mirage); the daemon's log has the traceback"
            self._change(replace(run, state=RunState.FAILED, ended=self._now(), problem=problem))

    def _play(self, run: ReplayJob) -> None:
        folder = self._folder / run.run_id
        run = replace(run, state=RunState.RUNNING, started=self._now())
        self._change(run)
        until = time.monotonic() + _LONGEST
        try:
            argv = [*self._command(self._placed(run.wish), folder), "--output", _RESULT, "--progress", _PROGRESS]
            status = run_aside(
                argv,
                folder,
                folder / _LOG,
                lambda seconds: self._stops(run.run_id, seconds, until),
                self._memory_mb << 20,
            )
        except (MirageError, OSError) as error:
            self._change(replace(run, state=RunState.FAILED, ended=self._now(), problem=str(error)))
            return
        if status is None and time.monotonic() >= until:
            state, problem = (
                RunState.FAILED,
                f"timed out after {_LONGEST:g} s; choose fewer links or a shorter span",
            )
        elif status is None:
            state, problem = RunState.LOST, "the daemon ended"
        elif status:
            state, problem = RunState.FAILED, self._failure(status, folder / _LOG)
        else:
            state, problem = _outcome(folder / _RESULT)
        self._change(replace(self._with_progress(run), state=state, ended=self._now(), problem=problem))
        if run.run_id in self._unwanted:
            self._unwanted.discard(run.run_id)
            shutil.rmtree(folder, ignore_errors=True)

    def _failure(self, status: int, log: Path) -> str:
        if not ran_out_of_memory(status, log):
            return last_line(log)
        bound = f" (at most {self._memory_mb} MiB, replays.memory_mb)" if self._memory_mb else ""
        return f"out of memory{bound}: ask for fewer links, fewer predictors or a shorter span"

    def _placed(self, wish: ReplaySpec) -> ReplaySpec:
        """With the files that are offered by their paths."""
        files = self.files()
        trace, cluster = (
            str(self._offered / name) if self._offered is not None and name in files else name
            for name in (wish.trace, wish.cluster)
        )
        return replace(wish, trace=trace, cluster=cluster)

    def _stops(self, run_id: str, seconds: float, until: float) -> bool:
        return self._ended.wait(seconds) or run_id in self._unwanted or time.monotonic() >= until

    def _change(self, run: ReplayJob) -> None:
        """State that cannot be stored holds until the daemon ends; after that the run counts as lost."""
        with self._lock:
            if run.run_id not in self._runs:
                return
            self._runs[run.run_id] = run
            try:
                self._write(run)
            except OSError as error:
                _log.warning("replay %s: %s cannot be written: %s", run.run_id, self._folder, error.strerror)

    def _write(self, run: ReplayJob) -> None:
        """Store the run as a file of its directory. Raises ``OSError``."""
        folder = self._folder / run.run_id
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _RUN, _STORED.dump_json(run))

    def _forget_oldest(self) -> None:
        over = [run for run in self._runs.values() if run.over]
        for run in (over[place] for place in find_surplus([(run.by, 1) for run in over], _KEPT)):
            del self._runs[run.run_id]
            shutil.rmtree(self._folder / run.run_id, ignore_errors=True)

    def _with_progress(self, run: ReplayJob) -> ReplayJob:
        if run.state is not RunState.RUNNING:
            return run
        try:
            told = parse_own_json((self._folder / run.run_id / _PROGRESS).read_text(encoding="utf-8"))
            return replace(run, done=int(told["done"]), total=int(told["total"]))
        except (OSError, ValueError, KeyError, TypeError):
            return run


def _outcome(result: Path) -> tuple[RunState, str]:
    """Of a run that has ended well: whether its result can be sent."""
    try:
        size = result.stat().st_size
    except OSError as error:
        return RunState.FAILED, f"the result cannot be read: {error.strerror}"
    if size <= LARGEST_RESULT:
        return RunState.DONE, ""
    most = f"the result is larger than {LARGEST_RESULT >> 20} MiB"
    return RunState.FAILED, f"{most}; ask for fewer predictors or links, or a shorter span"


def _read(folder: Path) -> Iterator[ReplayJob]:
    """Read the runs of an earlier process: runs that were not over are lost."""
    for path in folder.glob(f"*/{_RUN}"):
        try:
            run = _STORED.validate_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if _ID.fullmatch(path.parent.name) and run.run_id == path.parent.name:
            yield (
                run
                if run.over
                else replace(run, state=RunState.LOST, problem="the daemon ended before the replay")
            )
