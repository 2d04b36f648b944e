"""A simulator that is a command: it reads a workload, and writes when each job started."""

from __future__ import annotations

import csv
import resource
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import ConfigError, MirageError
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.bench.peers.workload import Workload
    from mirage.simulator.easy import Int64

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
class Run:
    """Schedule and duration of one run."""

    starts: Int64
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


def run_program(program: Program, workload: Workload) -> Run:
    """Run it in an empty directory. Raises ``MirageError`` with the program's message or with what is missing."""
    with tempfile.TemporaryDirectory(prefix="mirage-peer-") as name:
        folder = Path(name)
        log, schedule = folder / "workload.swf", folder / "schedule"
        workload.write(log)
        values = dict(zip(WORDS, (str(log), str(workload.processors), str(schedule)), strict=True))
        seconds = _spent(program.name, [_filled(word, values) for word in program.words], folder)
        return Run(read_starts(program.name, schedule, len(workload.jobs)), seconds)


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


def read_starts(name: str, path: Path, count: int) -> Int64:
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
