"""How fast the simulated pool is: whole runs, one decision, a copy; and the decision time of DAS's agents.

CPU seconds of this process, the fastest of several repetitions; the machine may be shared. Muri's simulator is
next to it if it is there. DAS: CPU milliseconds of one decision by both agents, untrained or trained.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.das.policies import das_ordering, das_placer
from mirage.allocation.ddl.dispatch import dispatch
from mirage.allocation.ddl.encode import LinearScores
from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.formats.traces import read_muri
from mirage.allocation.ddl.generator import Arrival, ModelClass, TaskMix, draw_tasks
from mirage.allocation.ddl.placers import CompiledPlacer
from mirage.allocation.ddl.registry import ordering
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.allocation.ddl.speeds import even_speeds
from mirage.bench import BenchSection
from mirage.bench.references import run_muri, trace_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.domain.pool import Pool, PoolView, TaskTable
    from mirage.ports import Ordering

DAS_PENDING, DAS_POOL, DAS_REPEATS = 200, "64x4", 20


def measure_das(folder: Path, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """One decision for 200 pending tasks on 64 nodes of 4 devices: empty, and with tasks that run."""
    say(f"{DAS_PENDING} tasks on {DAS_POOL}")
    empty = _pool()
    rows = [("empty pool", _decide(empty.view(), folder))]
    placer, order = das_placer(str(folder)), np.argsort(-empty.tasks.work).astype(np.int32)
    for placement in placer.place(empty.view(), order, strict=False)[:60]:
        empty.start(placement)
    rows.append(("60 tasks run", _decide(empty.view(), folder)))
    return (BenchSection(f"DAS: one decision, {DAS_PENDING} pending tasks, {DAS_POOL}", tuple(rows)),)


def _pool() -> SimulatedPool:
    mix = TaskMix((ModelClass("", 1.0, (1, 2, 4), (1.0, 1.0, 1.0)),), count=DAS_PENDING + 60)
    pool = parse_pool(DAS_POOL)
    tasks = draw_tasks(mix, np.random.default_rng(1), len(pool.device_node))
    simulated = SimulatedPool(tasks, pool, even_speeds(tasks, pool), DispatchRules())
    simulated.advance()
    return simulated


def _decide(view: PoolView, folder: Path) -> str:
    ordering, placer = das_ordering(str(folder)), das_placer(str(folder))
    taken = []
    for _ in range(DAS_REPEATS):
        seen = replace(view, pending=view.pending[:DAS_PENDING])
        begun = time.process_time()
        order = seen.pending[np.argsort(ordering.score(seen), kind="stable")]
        placer.place(seen, order, strict=False)
        taken.append(time.process_time() - begun)
    return f"{min(taken) * 1e3:.1f} ms (median {np.median(taken) * 1e3:.1f})"


TRACE = "trace1"
POOL = "8x8"
PENDING = 200
LARGE_POOL = "64x4"


class LeastService:
    """The least remaining device-time first (SRSF), as Muri's ``shortest-gpu``."""

    name = "srsf"

    def static_scores(self, tasks: TaskTable) -> None:
        """Return ``None``: the scores change as tasks run."""

    def linear_scores(self, tasks: TaskTable) -> LinearScores:
        """Remaining service time times devices, as a linear function of the remaining time."""
        none = np.zeros(len(tasks))
        return LinearScores(none, tasks.devices.astype(np.float64), none)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """Remaining service time times devices, for each pending task."""
        return np.asarray(view.remaining * view.tasks.devices)[view.pending]


def measure_allocation(traces: Path, muri: Path | None, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """Every section. ``muri``: the directory of Muri's simulator, if it is to be run next to ours."""
    say("compiling, or reading the compiled kernel")
    title, tasks, pool = _tasks(traces, muri)
    whole, mean_jct = _whole_runs(tasks, pool)
    sections = [BenchSection(f"whole runs: {title}, {len(tasks):,} tasks on {POOL} devices", whole)]
    if muri is not None:
        say("Muri's simulator")
        sections.append(_beside_muri(muri, _seconds(tasks, pool, LeastService(), preempt=True), mean_jct))
    say("one decision")
    sections.append(_decisions())
    return tuple(sections)


def _tasks(traces: Path, muri: Path | None) -> tuple[str, TaskTable, Pool]:
    """Muri's trace 1 from its directory or next to the published traces; else as many tasks from the generator."""
    pool = parse_pool(POOL)
    path = trace_path(muri, TRACE) if muri else traces.parent / "yardsticks" / "muri" / f"{TRACE}.csv"
    if path.exists():
        return f"Muri's {TRACE}", read_muri(path, pool).tasks, pool
    sizes = ModelClass("", 1.0, (1, 2, 4, 8), (0.7, 0.1, 0.1, 0.1))
    mix = TaskMix((sizes,), count=1500, arrival=Arrival.POISSON, load=1.5, restart_s=10.0)
    return "generated", draw_tasks(mix, np.random.default_rng(1), len(pool.device_node)), pool


def _whole_runs(tasks: TaskTable, pool: Pool) -> tuple[tuple[tuple[str, str], ...], float]:
    rows, mean_jct = [], 0.0
    for policy, preempt in ((ordering("fifo"), False), (ordering("sjf"), False), (LeastService(), True)):
        seconds = _seconds(tasks, pool, policy, preempt=preempt)
        found = _new_pool(tasks, pool, preempt).play(policy, CompiledPlacer("best-fit")).figures
        events = 2 * (len(tasks) + found.preemptions)
        named = f"{policy.name}{' with preemption' if preempt else ''}, best-fit"
        rows.append((named, f"{seconds * 1e3:,.1f} ms, {events / seconds:,.0f} events/s"))
        mean_jct = found.mean_jct
    base = _new_pool(tasks, pool, preempt=False)
    rows.append(("a copy of the pool", f"{_fastest(base.copy, 20) * 1e6:,.0f} us"))
    return tuple(rows), mean_jct


def _seconds(tasks: TaskTable, pool: Pool, policy: Ordering, *, preempt: bool) -> float:
    base, placer = _new_pool(tasks, pool, preempt), CompiledPlacer("best-fit")
    return _fastest(lambda: base.copy().play(policy, placer), 7)


def _new_pool(tasks: TaskTable, pool: Pool, preempt: bool) -> SimulatedPool:
    return SimulatedPool(tasks, pool, even_speeds(tasks, pool), DispatchRules(preempt=preempt))


def _beside_muri(simulator: Path, seconds: float, mean_jct: float) -> BenchSection:
    peer = run_muri(simulator, TRACE)
    return BenchSection(
        f"shortest remaining service first, with preemption: {TRACE}, CPU seconds",
        (
            ("Muri's simulator", f"{peer.cpu_seconds:,.2f} s, mean completion {peer.mean_jct:,.0f} s"),
            ("this simulator", f"{seconds:,.4f} s, mean completion {mean_jct:,.0f} s"),
            ("as many times faster", f"{peer.cpu_seconds / seconds:,.0f}"),
        ),
    )


def _decisions() -> BenchSection:
    """One decision among many pending tasks on a large pool, half of which is taken."""
    pool = parse_pool(LARGE_POOL)
    rng = np.random.default_rng(2)
    count = PENDING + len(pool.device_node) // 4
    devices = np.where(np.arange(count) < count - PENDING, 2, rng.choice((1, 2, 4), count)).astype(np.int64)
    tasks = task_table(
        tuple(f"t{row}" for row in range(count)),
        submit=[0.0 if row < count - PENDING else 1.0 for row in range(count)],
        devices=devices,
        work=rng.uniform(3600.0, 7200.0, count),
        restart=10.0,
    )
    rows = []
    for name, preempt in (("sjf, best-fit", False), ("sjf with preemption, best-fit", True)):
        world = _new_pool(tasks, pool, preempt)
        _start_first(world)
        decide = partial(
            dispatch, world.view(), ordering("sjf"), CompiledPlacer("best-fit"), DispatchRules(preempt=preempt)
        )
        rows.append((name, f"{_fastest(decide, 20) * 1e3:,.2f} ms"))
    return BenchSection(
        f"one decision: {PENDING} pending tasks, a pool of {LARGE_POOL} devices, half of it taken", tuple(rows)
    )


def _start_first(world: SimulatedPool) -> None:
    """Start the tasks that are there at first, then continue to the arrival of the others."""
    world.advance()
    for placement in dispatch(world.view(), ordering("fifo"), CompiledPlacer("first-fit"), DispatchRules()).starts:
        world.start(placement)
    world.advance()


def _fastest(work: Callable[[], object], repetitions: int) -> float:
    """CPU seconds of the fastest repetition, after one that is not counted."""
    work()
    times = []
    for _ in range(repetitions):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)
