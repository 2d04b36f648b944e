"""Other simulators next to ours: every program on every workload, several times, in one table each.

The workload is one pool of CPUs and what is submitted to it, as every simulator can read it. A simulator is a
command that reads it, and writes when each job started. AccaSim (Galleguillos et al., Cluster Computing 2020)
is installed from PyPI into a separate environment.
"""

from __future__ import annotations

import csv
import os
import resource
import shlex
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench import BenchSection
from mirage.bench.references import run_peer
from mirage.domain.errors import ConfigError, MirageError
from mirage.domain.job import ABSENT
from mirage.ownprocess import own_python
from mirage.simulator.run import mean_bounded_slowdown, pool_jobs, pool_starts
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace
from mirage.trace.swf import SwfField

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirage.domain.jobtable import Int32, JobTable
    from mirage.simulator.run import IntArray

_SUBMIT, _RUNTIME, _REQUEST, _WIDTH = range(4)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs that ran, in order of submission."""

    name: str
    jobs: IntArray
    """Shape (jobs, 4): submit, run time, request (s), CPUs; the run time is at most the request."""
    processors: int

    def starts(self) -> IntArray:
        """By our simulator, the core alone."""
        return pool_starts(self.jobs, self.processors)

    def figures(self, starts: IntArray) -> tuple[float, float]:
        """Mean wait (s) and mean bounded slowdown of a schedule of these jobs."""
        wait = starts - self.jobs[:, _SUBMIT]
        return float(wait.mean()), mean_bounded_slowdown(wait, self.jobs[:, _RUNTIME])

    def write(self, path: Path) -> None:
        """As a log of the Standard Workload Format: job numbers from 1, one user, no memory.

        Run times are capped at the request: what programs do beyond it is no matter of backfilling.
        """
        count = len(self.jobs)
        rows = np.full((count, len(SwfField)), ABSENT, dtype=np.int64)
        rows[:, SwfField.JOB_NUMBER] = np.arange(1, count + 1)
        rows[:, SwfField.SUBMIT_TIME], rows[:, SwfField.RUN_TIME] = self.jobs[:, _SUBMIT], self.jobs[:, _RUNTIME]
        rows[:, SwfField.REQUESTED_TIME] = self.jobs[:, _REQUEST]
        rows[:, (SwfField.ALLOCATED_PROCESSORS, SwfField.REQUESTED_PROCESSORS)] = self.jobs[:, _WIDTH, None]
        rows[:, (SwfField.STATUS, SwfField.USER, SwfField.GROUP)] = 1
        header = {"MaxJobs": count, "MaxProcs": self.processors, "MaxNodes": self.processors, "UnixStartTime": 0}
        text = "\n".join(f" {name}: {value}" for name, value in header.items())
        np.savetxt(path, rows, fmt="%d", header=text, comments=";")


def pool_workload(name: str, table: JobTable, width: Int32, processors: int) -> Workload:
    """Of a table's jobs those that ran for a second or more; ``width``: what each takes of the pool."""
    ran = table.take(table.runtime > 0)
    submit = ran.submit - ran.submit.min() + 1
    jobs, _ = pool_jobs(submit, ran.runtime, ran.limit, width[table.runtime > 0].astype(np.int64), processors)
    return Workload(name, jobs, processors)


WORDS = ("{swf}", "{processors}", "{schedule}")
"""In a command: the log to read, the pool's size, and where the schedule is to be written."""
_JOB = "job_id"
_START = ("start", "start_time", "starting_time")
"""Columns of a schedule; the last is Batsim's."""
_NOT_STARTED = -1


@dataclass(frozen=True, slots=True)
class Program:
    """A name for the table, and the command's words."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """Schedule and duration of one run."""

    starts: IntArray
    """Of each job, in the workload's order (s)."""
    seconds: float
    """Of CPUs (user and system), reading and writing included."""


def parse_program(text: str) -> Program:
    """``NAME=COMMAND``, split as a shell would. Raises ``ConfigError`` where it cannot be run."""
    name, found, command = text.partition("=")
    words = tuple(shlex.split(command))
    missing = [word for word in ("{swf}", "{schedule}") if not any(word in part for part in words)]
    if not (name and found and words) or missing:
        raise ConfigError(
            "--peer",
            f"{text!r} is not NAME=COMMAND with {{swf}}, the log to read, and {{schedule}}, the file to write; "
            f"{{processors}} is the pool's size",
        )
    return Program(name, words)


def run_program(program: Program, workload: Workload) -> ProgramRun:
    """Run it in an empty directory. Raises ``MirageError`` with the program's message or with what is missing."""
    with tempfile.TemporaryDirectory(prefix="mirage-peer-") as name:
        folder = Path(name)
        log, schedule = folder / "workload.swf", folder / "schedule"
        workload.write(log)
        values = dict(zip(WORDS, (str(log), str(workload.processors), str(schedule)), strict=True))
        seconds = _spent(program.name, [_filled(word, values) for word in program.words], folder)
        return ProgramRun(read_starts(program.name, schedule, len(workload.jobs)), seconds)


def _filled(word: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        word = word.replace(key, value)
    return word


def _spent(name: str, command: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - asked for
    except OSError as error:
        raise MirageError(f"{name}: {command[0]} cannot be run: {error.strerror or error}") from error
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise MirageError(f"{name} failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_starts(name: str, path: Path, count: int) -> IntArray:
    """Start of jobs 1 to ``count`` from a CSV with a header, a log (SWF), or a table as we write it.

    Raises ``MirageError`` where the file is not there, cannot be read, or leaves jobs out.
    """
    if not path.is_file():
        raise MirageError(f"{name} ended without writing its schedule to {path.name}")
    with path.open("rb") as file:
        as_csv = _JOB.encode() in file.readline()
    pairs = _csv_pairs(name, path) if as_csv else _table_pairs(path)
    starts = np.full(count, _NOT_STARTED, dtype=np.int64)
    for job, start in pairs:
        if not 1 <= job <= count:
            raise MirageError(f"{name}'s schedule has a job {job}; the workload has 1 to {count}")
        starts[job - 1] = start
    lacking = np.flatnonzero(starts < 0)
    if len(lacking):
        first = f"the first is job {lacking[0] + 1}"
        raise MirageError(f"{name}'s schedule has no start for {len(lacking)} of {count} jobs; {first}")
    return starts


def _csv_pairs(name: str, path: Path) -> Iterable[tuple[int, int]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        column = next((word for word in _START if word in (rows.fieldnames or ())), "")
        if not column:
            raise MirageError(f"{name}'s schedule has no column {', '.join(_START[:-1])} or {_START[-1]}")
        for row in rows:
            try:
                yield int(row[_JOB]), round(float(row[column]))
            except (TypeError, ValueError) as error:
                raise MirageError(f"{name}'s schedule, line {rows.line_num}: {error}") from error


def _table_pairs(path: Path) -> Iterable[tuple[int, int]]:
    table = read_trace(path).table
    return zip(map(int, table.job_id.tolist()), table.start.tolist(), strict=True)


REQUIREMENT = "accasim>=1.1,<1.2"
_SCRIPT = Path(__file__).with_name("accasim_easy.py")
_DISPATCHERS = {"AccaSim": "own", "AccaSim, a textbook's EASY in it": "textbook"}
_PATIENCE = 600


def accasim_programs() -> tuple[Program, ...]:
    """AccaSim's EASY, and the textbook's in its engine. Raises ``MirageError`` where it cannot be installed."""
    python = _environment(environment_folder())
    return tuple(
        Program(name, (str(python), "-P", str(_SCRIPT), dispatcher, *WORDS))
        for name, dispatcher in _DISPATCHERS.items()
    )


def environment_folder() -> Path:
    """Directory of its environment."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mirage" / "peers" / "accasim"


def _environment(folder: Path) -> Path:
    """The interpreter of an environment with AccaSim; creates the environment if it is missing."""
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.is_file():
        _ask(own_python("-m", "venv", "--clear", str(folder)))
        _ask([str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT])
        installed.write_text(f"{REQUIREMENT}\n", encoding="utf-8")
    return python


def _ask(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)  # noqa: S603 - fixed programs
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MirageError(f"AccaSim cannot be installed: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MirageError(f"AccaSim cannot be installed: {said[-1] if said else command}")


if TYPE_CHECKING:
    Rows = tuple[tuple[str, str], ...]

RUNS = 3
KTH = "KTH-SP2-1996-2.1-cln.swf.gz"
_KTH_PROCESSORS = 100
_LS6_NODES = 76
_OURS = Program(
    "this simulator, as a program",
    (
        *own_python("-m", "mirage", "simulate", "{swf}", "--scheduling", "easy"),
        *("--processors", "{processors}", "--schedule", "{schedule}"),
    ),
)


def measure_peers(
    traces: Path, asked: tuple[Program, ...], say: Callable[[str], None]
) -> tuple[BenchSection, ...]:
    """A section for each workload. ``asked``: programs that the user has, besides those that can be installed."""
    say("AccaSim's environment")
    others: tuple[Program, ...] = ()
    lacking: Rows = ()
    try:
        others = accasim_programs()
    except MirageError as error:
        lacking = (("AccaSim", f"not measured: {error}"),)
    programs = (_OURS, *others, *asked)
    return tuple(_section(workload, programs, lacking, say) for workload in _workloads(traces))


def _workloads(traces: Path) -> Iterator[Workload]:
    drawn = generate("ls6", 1)
    yield pool_workload("generated:ls6:1", drawn, drawn.nodes, _LS6_NODES)
    if (traces / KTH).is_file():
        table = read_trace(traces / KTH).table
        yield pool_workload("KTH-SP2", table, table.cpus, _KTH_PROCESSORS)


def _section(
    workload: Workload, programs: tuple[Program, ...], lacking: Rows, say: Callable[[str], None]
) -> BenchSection:
    ours = workload.starts()
    rows = [("this simulator, the core alone", _row(workload, ours, ours, _core_seconds(workload)))]
    rows += _cplusplus(workload)
    for program in programs:
        say(f"{workload.name}: {program.name}, {RUNS} runs")
        runs = [run_program(program, workload) for _ in range(RUNS)]
        rows.append((program.name, _row(workload, ours, _same(program, runs), [run.seconds for run in runs])))
    title = f"EASY: {workload.name}, {len(workload.jobs):,} jobs, a pool of {workload.processors}; {RUNS} runs"
    return BenchSection(title, (*rows, *lacking))


def _same(program: Program, runs: list[ProgramRun]) -> IntArray:
    """The schedule that all runs gave."""
    if any((run.starts != runs[0].starts).any() for run in runs):
        raise MirageError(f"{program.name} gives another schedule each time it is run")
    return runs[0].starts


def _core_seconds(workload: Workload) -> list[float]:
    seconds = []
    for _ in range(RUNS):
        begun = time.process_time()
        workload.starts()
        seconds.append(time.process_time() - begun)
    return seconds


def _cplusplus(workload: Workload) -> Rows:
    columns = (np.ascontiguousarray(workload.jobs[:, k]) for k in range(4))
    peer = run_peer(*columns, capacity=workload.processors)
    if peer is None:
        return (("C++ reference", "not measured: there is no g++"),)
    waits = _waits(peer.mean_wait, peer.mean_bounded_slowdown)
    return (("C++ reference, the core alone", f"{waits}; {peer.jobs_per_second:,.0f} jobs/s"),)


def _row(workload: Workload, ours: IntArray, starts: IntArray, seconds: list[float]) -> str:
    agreed = (starts == ours).mean()
    middle, jobs = statistics.median(seconds), len(starts)
    speed = f"{jobs / middle:,.0f} jobs/s ({jobs / max(seconds):,.0f}-{jobs / min(seconds):,.0f})"
    return f"{_waits(*workload.figures(starts))}; {speed}; {agreed:.1%} start when ours do"


def _waits(mean_wait: float, slowdown: float) -> str:
    return f"mean wait {mean_wait:,.2f} s, bounded slowdown {slowdown:.3f}"
