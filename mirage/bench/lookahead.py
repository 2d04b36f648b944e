"""What a look-ahead costs: futures played in a second, and one decision, by the length of the queue.

CPU seconds of this process, on one core; the machine may be shared.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.backends.simulated import SimulatedCluster
from mirage.bench.section import Section
from mirage.domain.decision import ActionScores, Observation, RecentWaits
from mirage.domain.job import JobRequest
from mirage.predictors.lookahead import Budget, Lookahead
from mirage.predictors.lookahead.predictor import BEYOND
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig

DAY, HOUR = 86_400, 3_600
QUEUES = (50, 500)
"""Jobs added to the queue within the last hour."""

FUTURES = 200
LEFT = 10 * HOUR
"""Remaining time of the predecessor: so little that with a queue all submit times must be weighed."""

NODES = 4

NEVER_CLEAR = Budget(clear=1e9)
"""All futures that may be played are."""


def measure_lookahead(traces: Path, say: Callable[[str], None]) -> tuple[Section, ...]:
    """One section for each length of the queue. ``say`` receives the title of the next measurement."""
    path = traces / "ls6-a100-to-2023-02.log.gz"
    table = read_trace(path).table if path.exists() else generate("ls6", 1)
    cluster = load_cluster("ls6")
    say("compiling, or reading the compiled kernel")
    _decided(cluster, _observed(cluster, table, 0))
    sections = []
    for queue in QUEUES:
        say(f"{queue} jobs more in the queue")
        sections.append(_section(cluster, _observed(cluster, table, queue)))
    return tuple(sections)


def _observed(cluster: ClusterConfig, table: JobTable, more: int) -> Observation:
    """A service in the middle of the trace's second half, behind ``more`` jobs that have just been submitted."""
    at = int(table.submit[len(table) * 3 // 4])
    world = SimulatedCluster(Simulation(cluster, crowded(table, at, more), start=at - (2 * DAY - LEFT) - DAY))
    request = JobRequest("service", "service", 2 * DAY, NODES, tag="bench")
    world.submit(request)
    while not world.snapshot().running.job_id.max(initial=0) >= world.snapshot().links["bench"].job_id:
        world.advance(world.now() + 600)
    world.advance(at)
    predecessor = replace(world.snapshot().links["bench"], end=at + LEFT)
    return Observation(
        at, world.snapshot(), predecessor, request, RecentWaits.none(), history=world.jobs(42 * DAY)
    )


def crowded(table: JobTable, at: int, more: int) -> JobTable:
    """The trace with its latest jobs before ``at`` submitted again in the last hour before it."""
    ran = np.flatnonzero((table.submit < at) & (table.start >= 0) & (table.runtime > HOUR))[len(table) // 8 :]
    again = np.resize(ran[::-1], more)
    when = at - 1 - np.arange(more) * HOUR // max(more, 1)
    both = table.take(np.concatenate([np.arange(len(table)), again]))
    submit, start, end = both.submit.copy(), both.start.copy(), both.end.copy()
    submit[len(table) :], start[len(table) :] = when, when
    end[len(table) :] = when + table.runtime[again]
    both = replace(both, submit=submit, start=start, end=end)
    return both.take(np.argsort(submit, kind="stable"))


def _section(cluster: ClusterConfig, observation: Observation) -> Section:
    snapshot, predictor = observation.snapshot, Lookahead(cluster)
    rows = [(f"forecast from {FUTURES} futures", f"{_forecast_seconds(predictor, observation):.2f} s")]
    seconds, answer = _decided(cluster, observation)
    kind = "all submit times weighed" if isinstance(answer, ActionScores) else "too early by the first forecast"
    rows.append((f"one decision ({kind})", f"{seconds:.2f} s"))
    seconds, _ = _decided(cluster, observation, NEVER_CLEAR)
    rows.append(("the same, were the better action never clear", f"{seconds:.2f} s"))
    title = f"look-ahead: {len(snapshot.pending)} pending, {len(snapshot.running)} running, CPU time on one core"
    return Section(title, tuple(rows))


def _forecast_seconds(predictor: Lookahead, observation: Observation) -> float:
    begun = time.process_time()
    outlook = predictor.outlook(observation, observation.time + LEFT + BEYOND)
    outlook.starts(np.arange(FUTURES), np.array([observation.time]))
    return time.process_time() - begun


def _decided(
    cluster: ClusterConfig, observation: Observation, budget: Budget | None = None
) -> tuple[float, object]:
    predictor = Lookahead(cluster, budget=budget)
    begun = time.process_time()
    answer = predictor.predict(observation)
    return time.process_time() - begun, answer
