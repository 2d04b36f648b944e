"""Every program on every workload, several times, in one table each."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench.peer import run_peer
from mirage.bench.peers.accasim import accasim_programs
from mirage.bench.peers.program import Program, Run, run_program
from mirage.bench.peers.workload import Workload, pool_workload
from mirage.bench.section import Section
from mirage.domain.errors import MirageError
from mirage.ownprocess import own_python
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirage.simulator.easy import Int64

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


def measure_peers(traces: Path, asked: tuple[Program, ...], say: Callable[[str], None]) -> tuple[Section, ...]:
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
) -> Section:
    ours = workload.starts()
    rows = [("this simulator, the core alone", _row(workload, ours, ours, _core_seconds(workload)))]
    rows += _cplusplus(workload)
    for program in programs:
        say(f"{workload.name}: {program.name}, {RUNS} runs")
        runs = [run_program(program, workload) for _ in range(RUNS)]
        rows.append((program.name, _row(workload, ours, _same(program, runs), [run.seconds for run in runs])))
    title = f"EASY: {workload.name}, {len(workload.jobs):,} jobs, a pool of {workload.processors}; {RUNS} runs"
    return Section(title, (*rows, *lacking))


def _same(program: Program, runs: list[Run]) -> Int64:
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


def _row(workload: Workload, ours: Int64, starts: Int64, seconds: list[float]) -> str:
    agreed = (starts == ours).mean()
    middle, jobs = statistics.median(seconds), len(starts)
    speed = f"{jobs / middle:,.0f} jobs/s ({jobs / max(seconds):,.0f}-{jobs / min(seconds):,.0f})"
    return f"{_waits(*workload.figures(starts))}; {speed}; {agreed:.1%} start when ours do"


def _waits(mean_wait: float, slowdown: float) -> str:
    return f"mean wait {mean_wait:,.2f} s, bounded slowdown {slowdown:.3f}"
