"""Ways to run a simulation: a whole trace, one pool of CPUs, or step by step on request.

EASY and FIFO on one pool are for comparison with the literature; their convention is in
``mirage.simulator.kernel.pool``. With ``DirectedSimulation`` the rules can be compared with those of a real
slurmctld, whose scheduling times are not known in advance: the comparison goes from one recorded state to the
next, so that earlier differences do not grow into later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT, JobId, JobState
from mirage.simulator import controller_state
from mirage.simulator.cluster import Scheduling
from mirage.simulator.kernel import engine, operations
from mirage.simulator.kernel.layout import COMPLETING_ROW, DRAIN, NEVER, UP, UP_ROW
from mirage.simulator.kernel.pool import run_pool
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import Int64, JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.kernel.layout import ControllerState, Fixed, KernelRecord


class DirectedSimulation(Simulation):
    """Jobs are submitted, changed and end as ever; they start by ``start`` and ``look`` alone."""

    def __init__(self, cluster: ClusterConfig, *, start: Seconds, log: bool = False) -> None:
        """Idle at ``start``. Its partitions are down, so that no scheduler starts anything by itself."""
        closed = tuple(replace(partition, up=False) for partition in cluster.partitions)
        super().__init__(replace(cluster, partitions=closed), start=start, log=log)
        self._up = np.array([int(partition.up) for partition in cluster.partitions])

    def start(self, job_id: JobId, nodes: Iterable[str]) -> bool:
        """Start a pending job on these nodes now; False where it is not pending or they have no room for it.

        Raises ``UnknownJob``, and ``ConfigError`` for an unknown node.
        """
        state, slot = self._state, self._slot(job_id)
        if slot < 0 or state.world.jobs["status"][slot] != JobState.PENDING:
            return False
        state.make_room_for_events()
        chosen = state.model.node_words(nodes)
        return bool(operations.start_on(state.fixed, state.world, state.scratch, state.record, slot, chosen))

    def look(self, kind: str, completing: Iterable[str] = ()) -> None:
        """One pass now: ``main`` (the main loop), ``full`` (over the whole queue), ``backfill``.

        No job starts on nodes that are ``completing``: their last one has ended, and has not left them.
        """
        self._state.make_room_for_events()
        self._pass(self._state.world, self._state.record, kind, completing)

    def would_start(self, kind: str, completing: Iterable[str] = ()) -> tuple[JobId, ...]:
        """The jobs that ``look`` would start; nothing changes."""
        state = self._state
        state.extend()
        work = state.work_area()
        engine.copy_world(state.world, work)
        self._pass(work, controller_state.no_record(), kind, completing)
        before, after = (world.own["start"][: len(state.own)] for world in (state.world, work))
        return tuple(JobId(int(job)) for job in state.own["id"][before != after])

    def _pass(self, world: ControllerState, record: KernelRecord, kind: str, completing: Iterable[str]) -> None:
        fixed, scratch = self._open(), self._state.scratch
        nodes = self._state.model.node_words(completing) & world.bits[UP_ROW]
        if kind == "backfill":
            world.bits[COMPLETING_ROW] = nodes
            operations.look(fixed, world, scratch, record, operations.BACKFILL)
            world.bits[COMPLETING_ROW] = 0
            return
        depth = int(engine.ENDLESS) if kind == "full" else self.cluster.scheduler.default_queue_depth
        engine.set_node_states(fixed, world, scratch, record, nodes, DRAIN)
        operations.look(fixed, world, scratch, record, depth)
        engine.set_node_states(fixed, world, scratch, record, nodes, UP)

    def _open(self) -> Fixed:
        """The constant tables, but with the present state of the partitions."""
        fixed = self._state.fixed._replace(partitions=self._state.fixed.partitions.copy())
        fixed.partitions["up"] = self._up
        return fixed


IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Figures of a schedule that the literature quotes."""

    mean_wait: float
    """Seconds."""
    mean_bounded_slowdown: float
    """max(1, (wait + run) / max(run, 10 s)), Feitelson et al. 1997."""


def simulate_pool(
    submit: IntArray, runtime: IntArray, request: IntArray, procs: IntArray, capacity: int, backfill: bool = True
) -> IntArray:
    """Start of each job (s); ``ABSENT`` for jobs that ask for no CPU or for more than ``capacity``.

    All columns have one entry a job. A request <= 0 is taken as the run time; the run time is capped at the
    request.
    """
    jobs, order = pool_jobs(submit, runtime, request, procs, capacity)
    result = np.full(len(submit), ABSENT, dtype=np.int64)
    result[order] = pool_starts(jobs, capacity, backfill)
    return result


def pool_jobs(
    submit: IntArray, runtime: IntArray, request: IntArray, procs: IntArray, capacity: int
) -> tuple[IntArray, IntArray]:
    """The possible jobs in order of submission, as rows of (submit, runtime, request, CPUs), and whose."""
    runs, requests = _capped(np.asarray(runtime, dtype=np.int64), np.asarray(request, dtype=np.int64))
    possible = np.flatnonzero((np.asarray(procs) > 0) & (np.asarray(procs) <= capacity))
    order = possible[np.argsort(np.asarray(submit)[possible], kind="stable")]
    columns = (submit, runs, requests, procs)
    return np.ascontiguousarray(np.column_stack(columns).astype(np.int64)[order]), order


def pool_starts(jobs: IntArray, capacity: int, backfill: bool = True) -> IntArray:
    """Start of each row of ``pool_jobs``: the core alone."""
    starts = np.zeros(len(jobs), dtype=np.int64)
    work = np.empty((2, capacity + 1, 2), dtype=np.int64)
    run_pool(jobs, capacity, backfill, starts, work[0], work[1], np.empty(len(jobs), dtype=np.int64))
    return starts


def _capped(runtime: IntArray, request: IntArray) -> tuple[IntArray, IntArray]:
    wanted = np.where(request > 0, request, runtime)
    return np.minimum(runtime, wanted), wanted


def pool_figures(submit: IntArray, runtime: IntArray, request: IntArray, start: IntArray) -> PoolFigures:
    """Mean wait and mean bounded slowdown over the jobs that started."""
    ran, _ = _capped(runtime, request)
    started = start != ABSENT
    wait, run = (start - submit)[started], ran[started]
    return PoolFigures(float(wait.mean()), mean_bounded_slowdown(wait, run))


def mean_bounded_slowdown(wait: IntArray, run: IntArray) -> float:
    """Mean of max(1, (wait + run) / max(run, 10 s)), Feitelson et al. 1997."""
    return float(np.maximum(1.0, (wait + run) / np.maximum(run, 10)).mean())


@dataclass(frozen=True, slots=True)
class ScheduleFigures:
    """The usual figures of a schedule; times in seconds, over the jobs that started."""

    jobs: int
    started: int
    rejected: int
    never_started: int
    mean_wait: float
    median_wait: float
    p90_wait: float
    mean_bounded_slowdown: float
    """max(1, (wait + run) / max(run, 10 s)), Feitelson et al. 1997."""
    utilisation: float
    """Share of the CPUs (nodes where only those are known) in use from the first submission to the last end."""
    span: int
    """From the first submission to the last end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A trace as it was scheduled: the table with the simulated starts, ends and states."""

    table: JobTable
    figures: ScheduleFigures
    rejected: dict[str, int]
    """Jobs that the cluster would have rejected, by Slurm's reason."""
    notes: tuple[str, ...]


def simulate(table: JobTable, cluster: ClusterConfig, scheduling: Scheduling) -> Schedule:
    """Schedule every job of ``table``.

    Raises ``ConfigError`` when the trace lacks what the mode needs, ``TraceError`` when no job can run.
    """
    if scheduling == Scheduling.SLURM:
        return _simulate_slurm(table, cluster)
    return _simulate_pool(table, cluster, scheduling == Scheduling.EASY)


def _simulate_slurm(table: JobTable, cluster: ClusterConfig) -> Schedule:
    simulation = Simulation(cluster, table)
    simulation.run()
    found = simulation.schedule()
    start = np.where(found["start"] == NEVER, ABSENT, found["start"])
    end = np.where(found["end"] == NEVER, ABSENT, found["end"])
    scheduled = replace(table, start=start, end=end, state=found["state"].astype(np.int8))
    # Whole nodes are taken where partitions give out nothing else, whatever CPUs the trace asked for.
    whole = all(p.exclusive for p in cluster.partitions)
    nodes = simulation.nodes_of(table)
    cpus = np.where(table.cpus > 0, table.cpus, nodes)
    width, capacity = (nodes, cluster.node_count) if whole else (cpus, cluster.cpu_count)
    figures = _figures(
        scheduled, np.maximum(width, 1).astype(np.int64), capacity, sum(simulation.rejected.values())
    )
    return Schedule(scheduled, figures, simulation.rejected, simulation.notes)


def _simulate_pool(table: JobTable, cluster: ClusterConfig, backfill: bool) -> Schedule:
    if (table.cpus <= 0).all():
        raise ConfigError(table.source, "a pool of CPUs needs the jobs' CPUs; the trace has none")
    limit = np.where(table.limit > 0, table.limit, 0)
    ran = table.start != ABSENT
    jobs = table.take(ran)
    procs = jobs.cpus.astype(np.int64)
    start = simulate_pool(jobs.submit, jobs.runtime, limit[ran], procs, cluster.cpu_count, backfill)
    wanted = np.where(limit[ran] > 0, limit[ran], jobs.runtime)
    end = np.where(start == ABSENT, ABSENT, start + np.minimum(jobs.runtime, wanted))
    too_wide = int((start == ABSENT).sum())
    if too_wide == len(jobs):
        problem = f"none of {len(table):,} jobs ran and fits into {cluster.cpu_count:,} CPUs"
        raise TraceError(
            table.source, 0, "", f"{problem}; choose --processors or a cluster file that fits the trace"
        )
    scheduled = replace(jobs, start=start, end=end)
    rejected = {"PartitionNodeLimit": too_wide} if too_wide else {}
    notes = list(table.notes)
    if not ran.all():
        notes.append(f"{int((~ran).sum())} jobs that never ran are left out: a pool has no cancellations")
    figures = _figures(scheduled, procs, cluster.cpu_count, too_wide)
    return Schedule(scheduled, figures, rejected, tuple(notes))


def _figures(table: JobTable, width: Int64, capacity: int, rejected: int) -> ScheduleFigures:
    started = (table.start != ABSENT) & (table.end != ABSENT)
    wait, run = (table.start - table.submit)[started], (table.end - table.start)[started]
    if not len(wait):
        return ScheduleFigures(len(table), 0, rejected, len(table) - rejected, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    span = int(table.end[started].max() - table.submit.min())
    used = float((run * width[started]).sum())
    return ScheduleFigures(
        jobs=len(table),
        started=int(started.sum()),
        rejected=rejected,
        never_started=len(table) - int(started.sum()) - rejected,
        mean_wait=float(wait.mean()),
        median_wait=float(np.median(wait)),
        p90_wait=float(np.percentile(wait, 90)),
        mean_bounded_slowdown=mean_bounded_slowdown(wait, run),
        utilisation=used / (capacity * span) if span else 0.0,
        span=span,
    )
