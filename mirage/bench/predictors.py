"""Cost of predictors by the length of the queue: one tick with many chains, and what a look-ahead costs.

A tick has trained models active and in shadow: CPU milliseconds of this process, one core, the median of some
ticks. Observations are put together before: they cost the same for every predictor. A look-ahead: futures
played in a second, and one decision, in CPU seconds of one core. The machine may be shared.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.artifact import MANIFEST
from mirage.atomic_file import read_regular
from mirage.backends.simulated import SimulatedCluster
from mirage.bench import BenchSection
from mirage.control.observations import ObservationBuilder
from mirage.documentreading import parse_json
from mirage.domain.decision import ActionScores, Observation, RecentWaits, Wants
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.domain.job import Job, JobId, JobRequest, JobState
from mirage.predictors.baselines import QuantileOfClass
from mirage.predictors.lookahead import BEYOND, Budget, Lookahead
from mirage.predictors.onnx_predictor import ArtifactPredictor, load_artifact
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from mirage.domain.jobtable import JobTable
    from mirage.ports import Predictor
    from mirage.simulator.cluster import ClusterConfig

DAY, HOUR = 86_400, 3_600
LOOKAHEAD_QUEUES = (50, 500)
"""Jobs added to the queue within the last hour."""

FUTURES = 200
LEFT = 10 * HOUR
"""Remaining time of the predecessor: so little that with a queue all submit times must be weighed."""

NODES = 4

NEVER_CLEAR = Budget(clear=1e9)
"""All futures that may be played are."""


def measure_lookahead(traces: Path, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """One section for each length of the queue. ``say`` receives the title of the next measurement."""
    path = traces / "ls6-a100-to-2023-02.log.gz"
    table = read_trace(path).table if path.exists() else generate("ls6", 1)
    cluster = load_cluster("ls6")
    say("compiling, or reading the compiled kernel")
    _decided(cluster, _observed(cluster, table, 0))
    sections = []
    for queue in LOOKAHEAD_QUEUES:
        say(f"{queue} jobs more in the queue")
        sections.append(_lookahead_section(cluster, _observed(cluster, table, queue)))
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


def _lookahead_section(cluster: ClusterConfig, observation: Observation) -> BenchSection:
    snapshot, predictor = observation.snapshot, Lookahead(cluster)
    rows = [(f"forecast from {FUTURES} futures", f"{_forecast_seconds(predictor, observation):.2f} s")]
    seconds, answer = _decided(cluster, observation)
    kind = "all submit times weighed" if isinstance(answer, ActionScores) else "too early by the first forecast"
    rows.append((f"one decision ({kind})", f"{seconds:.2f} s"))
    seconds, _ = _decided(cluster, observation, NEVER_CLEAR)
    rows.append(("the same, were the better action never clear", f"{seconds:.2f} s"))
    title = f"look-ahead: {len(snapshot.pending)} pending, {len(snapshot.running)} running, CPU time on one core"
    return BenchSection(title, tuple(rows))


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


CHAINS = 100
TICKS = 15
QUEUES = (0, 500)
"""Jobs added to the queue within the last hour."""

DAY, HOUR = 86_400, 3_600
LIMIT = 2 * DAY


def measure_predictors(traces: Path, models: Path, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """One section for each length of the queue, a row for each model below ``models``.

    ``say`` receives the title of the next measurement. Raises ``ConfigError`` where there is no model.
    """
    folders = sorted({path.parent for path in models.rglob(MANIFEST) if not _is_table(path)})
    loaded = [load_artifact(folder) for folder in folders]
    if not loaded:
        raise ConfigError("--models", f"no trained model is below {models}; mirage train makes one")
    path = traces / "ls6-a100-to-2023-02.log.gz"
    table = read_trace(path).table if path.exists() else generate("ls6", 1)
    sections = []
    for queue in QUEUES:
        say(f"{queue} jobs more in the queue")
        sections.append(_section(loaded, _tick(table, queue, reduce(or_, (model.wants for model in loaded)))))
    return tuple(sections)


def _is_table(manifest: Path) -> bool:
    """Whether it is that of a table of handovers, such as ``mirage evaluate`` keeps near its models."""
    try:
        content = parse_json(read_regular(manifest))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "chunks" in content


def _tick(table: JobTable, queue: int, wants: Wants) -> list[Observation]:
    """All chains as they are seen at one time of the trace's second half; links of one node and of eight.

    ``wants``: what the predictors need to see.
    """
    at = int(table.submit[len(table) * 3 // 4])
    world = SimulatedCluster(Simulation(load_cluster("ls6"), crowded(table, at, queue), start=at - 4 * DAY))
    world.advance(at - DAY)
    observer = ObservationBuilder(world, world, world, world)
    for instant in range(at - DAY, at + 1, 600):
        world.advance(instant)
        observer.seen(world.snapshot(), Wants(window=True))
    snapshot = world.snapshot()
    wants |= Wants(waits=1_000, queue=True, window=True, standing=True)
    seen = []
    for k in range(CHAINS):
        request = JobRequest("service", f"user{k}", LIMIT, (1, 8)[k % 2], tag=f"bench-{k}")
        begun = at - (k % 48) * HOUR
        times = (begun - HOUR, begun, begun + LIMIT)
        before = Job(JobId(k), "service", request.user, "", request.nodes, LIMIT, JobState.RUNNING, *times)
        seen.append(observer.observe(snapshot, before, request, wants))
    return seen


def _section(loaded: Sequence[ArtifactPredictor], tick: list[Observation]) -> BenchSection:
    pending, running = len(tick[0].snapshot.pending), len(tick[0].snapshot.running)
    baseline = _milliseconds([QuantileOfClass(0.5, "quantile")], tick)
    rows = [("quantile, to compare", f"{baseline:.1f} ms")]
    for model in loaded:
        taken = _milliseconds([model], tick)
        refused = sum(_refuses(model, observation) for observation in tick)
        said = f"; it rejects {refused} of them" if refused else ""
        rows.append((model.manifest.plugin, f"{taken:.1f} ms, {taken / baseline:.1f} times that{said}"))
    together = _milliseconds(loaded, tick)
    rows.append(("one active, the others in shadow", f"{together:.1f} ms, {together / baseline:.1f} times that"))
    return BenchSection(
        f"predictions for {len(tick)} chains, {pending} pending and {running} running jobs", tuple(rows)
    )


def _milliseconds(predictors: Iterable[Predictor], tick: list[Observation]) -> float:
    found = []
    for _ in range(TICKS):
        # A tick's observations are new ones: nothing is known of them from the tick before.
        fresh = [replace(observation) for observation in tick]
        begun = time.process_time()
        for observation in fresh:
            for predictor in predictors:
                _refuses(predictor, observation)
        found.append(time.process_time() - begun)
    return 1_000 * statistics.median(found)


def _refuses(predictor: Predictor, observation: Observation) -> bool:
    try:
        predictor.predict(observation)
    except ArtifactMismatch:
        return True
    return False
