"""A whole trace through a simulated cluster, and the figures that describe the schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT
from mirage.simulator.cluster import Scheduling
from mirage.simulator.easy import mean_bounded_slowdown, simulate_pool
from mirage.simulator.kernel.layout import NEVER
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64, JobTable
    from mirage.simulator.cluster import ClusterConfig


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
