"""How fast the simulator is: the pool against C++, the controller on real traces, what-if runs, start-up.

CPU seconds of this process where it works alone, the fastest of several repetitions; the machine may be shared.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench import BenchSection
from mirage.bench.references import run_peer
from mirage.domain.job import JobRequest
from mirage.ownprocess import own_python
from mirage.simulator.cluster import Association
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.run import pool_figures, pool_jobs, pool_starts
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig

DAY = 86_400
SERVICE = JobRequest("what-if", "what-if", limit=2 * DAY)
PUBLISHED_KTH_JOBS = 28_481
"""Jobs of the KTH-SP2 log that the published figures belong to; cleaned versions hold fewer."""
QUEUES = (100, 1_000, 10_000, 100_000)


def measure_simulator(traces: Path, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """Every section, in the order of docs/benchmarks/simulator.md. ``say`` gets the name of the next one."""
    say("compiling, or reading the compiled kernel")
    ls6 = _trace(traces, "ls6-a100-to-2023-02.log.gz", "ls6")
    cluster = load_cluster("ls6")
    _run(cluster, ls6)
    sections = []
    say("EASY on one pool")
    sections.append(_pool(traces))
    say("slurm mode")
    sections.append(_controller(traces, ls6, cluster))
    say("what-if runs")
    sections.append(_what_if(ls6, cluster))
    say("long queues")
    sections.append(_long_queues(cluster))
    say("start-up")
    sections.append(_start_up())
    return tuple(sections)


def _trace(traces: Path, name: str, preset: str) -> JobTable:
    path = traces / name
    return read_trace(path).table if path.exists() else generate(preset, 1)


def _fastest(work: Callable[[], object], repetitions: int) -> float:
    """CPU seconds of the fastest repetition."""
    times = []
    for _ in range(repetitions):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def _pool(traces: Path) -> BenchSection:
    path = traces / "KTH-SP2-1996-2.1-cln.swf.gz"
    if not path.exists():
        return BenchSection("EASY on one pool", (("KTH-SP2", f"not measured: {path} is not there"),))
    table = read_trace(path).table
    limit, procs = np.maximum(table.limit, 0), table.cpus.astype(np.int64)
    jobs, _ = pool_jobs(table.submit, table.runtime, limit, procs, 100)
    starts = pool_starts(jobs, 100)
    ours = len(jobs) / _fastest(lambda: pool_starts(jobs, 100), 9)
    figures = pool_figures(jobs[:, 0], jobs[:, 1], jobs[:, 2], starts)
    published = (" (published 6,834.6)", " (published 92.69)") if len(jobs) == PUBLISHED_KTH_JOBS else ("", "")
    rows = [
        ("this simulator", f"{ours:,.0f} jobs/s"),
        ("mean wait", f"{figures.mean_wait:,.1f} s{published[0]}"),
        ("mean bounded slowdown", f"{figures.mean_bounded_slowdown:.2f}{published[1]}"),
    ]
    peer = run_peer(*(np.ascontiguousarray(jobs[:, k]) for k in range(4)), capacity=100)
    if peer is None:
        rows.append(("C++ reference", "not measured: there is no g++"))
    else:
        rows.append(("C++ reference", f"{peer.jobs_per_second:,.0f} jobs/s ({peer.compiler})"))
        rows.append(("ratio to C++", f"{ours / peer.jobs_per_second:.2f}"))
    return BenchSection(f"EASY on one pool: KTH-SP2, {len(jobs):,} jobs, 100 CPUs (core alone)", tuple(rows))


def _run(cluster: ClusterConfig, table: JobTable) -> Simulation:
    simulation = Simulation(cluster, table)
    simulation.run()
    return simulation


def _controller(traces: Path, ls6: JobTable, cluster: ClusterConfig) -> BenchSection:
    rows = [_controller_row("LS6", cluster, ls6, 5)]
    path = traces / "curie_2012.parquet"
    if path.exists():
        rows.append(_controller_row("Curie", load_cluster("curie"), read_trace(path).table, 1))
    return BenchSection("slurm mode, whole traces (encoding the trace included)", tuple(rows))


def _controller_row(name: str, cluster: ClusterConfig, table: JobTable, repetitions: int) -> tuple[str, str]:
    seconds = _fastest(lambda: _run(cluster, table), repetitions)
    speed = f"{len(table) / seconds:,.0f} jobs/s"
    return f"{name}: {len(table):,} jobs, {cluster.node_count:,} nodes", f"{seconds:.2f} CPU s, {speed}"


def _what_if(ls6: JobTable, cluster: ClusterConfig) -> BenchSection:
    """Four-day continuations, each from a separate copy, at the middle of the trace and in its busiest month."""
    first, last = int(ls6.submit[0]), int(ls6.submit[-1])
    rows = []
    for name, at in (("middle of the trace", (first + last) // 2), ("February", first + 125 * DAY)):
        base = Simulation(cluster, ls6, start=at)
        pending, running = base.columns()
        seconds = _fastest(partial(_continue, base, 50, 4 * DAY), 5) / 50
        rows.append(
            (f"{name}: {len(pending)} pending, {len(running)} running", f"{1 / seconds:,.0f} a second and core")
        )
        base.start_times(SERVICE, 2 * DAY, np.array([at]))
        begun = time.process_time()
        base.start_times(SERVICE, 2 * DAY, at + np.arange(0, 2 * DAY, 1800))
        rows.append(("  96 submit times of one job", f"{(time.process_time() - begun) * 1e3:,.1f} ms"))
    return BenchSection("what-if: four-day continuations of LS6", tuple(rows))


def _continue(base: Simulation, count: int, span: int) -> None:
    for _ in range(count):
        base.copy().run_until(base.now + span)


def _long_queues(cluster: ClusterConfig) -> BenchSection:
    """A full cluster with many jobs waiting: what one more event, one plan and one copy cost."""
    rows = []
    for length in QUEUES:
        busy = _backlog(cluster, length)
        hour = _fastest(partial(_continue, busy, 1, 3600), 3)
        copy = _fastest(busy.copy, 5)
        plan = _fastest(partial(busy.estimate_start, SERVICE), 3)
        figures = f"an hour {hour * 1e3:,.1f} ms, a copy {copy * 1e6:,.0f} us, a full plan {plan * 1e3:,.2f} ms"
        rows.append((f"{length:,} pending", figures))
    return BenchSection("cost by queue length (76 nodes)", tuple(rows))


def _backlog(cluster: ClusterConfig, length: int) -> Simulation:
    """``length`` jobs waiting at the same time: generated jobs pressed into one hour, without user limits."""
    drawn = generate("ls6", 3, jobs=length + 500)
    drawn = drawn.take(drawn.start >= 0)
    hour = replace(drawn, submit=drawn.submit[0] + np.arange(len(drawn)) % 3600, eligible=drawn.eligible * 0 - 1)
    hour = hour.take(np.argsort(hour.submit, kind="stable"))
    hour = replace(hour, start=hour.submit, end=hour.submit + np.maximum(drawn.runtime, 600))
    free = replace(cluster, default_association=Association(account=""))
    return Simulation(free, hour, start=int(hour.submit[0]) + 3600)


def _start_up() -> BenchSection:
    """A second process: import and the first simulated event, with the kernel compiled before."""
    code = (
        "from mirage.simulator.configuration.clusterfile import load_cluster\n"
        "from mirage.simulator.simulation import Simulation\n"
        "from mirage.domain.job import JobRequest\n"
        "s = Simulation(load_cluster('demo'), start=0)\n"
        "s.submit(JobRequest('a', 'b', 3600), 60)\n"
        "s.run()\n"
    )
    whole, importing = _process_time(code), _process_time("import numba, numpy, pydantic")
    return BenchSection(
        "a second process (kernel in the cache), wall clock",
        (
            ("Python, imports, kernel, first job", f"{whole:.2f} s"),
            ("of which Python and third-party imports", f"{importing:.2f} s"),
            ("left for our modules and the cached kernel", f"{whole - importing:.2f} s"),
        ),
    )


def _process_time(code: str) -> float:
    """Wall-clock seconds of the fastest of five processes that run ``code``."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run(own_python("-c", code), check=True)  # noqa: S603 (this interpreter, our text)
        times.append(time.perf_counter() - begun)
    return min(times)
