"""Cost of one tick with many chains, trained models active and in shadow, by the length of the queue.

CPU milliseconds of this process, one core, the median of some ticks; the machine may be shared. Observations are
put together before: they cost the same for every predictor.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from mirage.artifact import MANIFEST
from mirage.backends.simulated import SimulatedCluster
from mirage.bench.lookahead import crowded
from mirage.bench.section import Section
from mirage.control.observing import Observer
from mirage.documenttext import parse_json
from mirage.domain.decision import Wants
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.domain.job import Job, JobId, JobRequest, JobState
from mirage.predictors.artifacts.predictor import ArtifactPredictor, load_artifact
from mirage.predictors.quantile import QuantileOfClass
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from mirage.domain.decision import Observation
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Predictor

CHAINS = 100
TICKS = 15
QUEUES = (0, 500)
"""Jobs added to the queue within the last hour."""

DAY, HOUR = 86_400, 3_600
LIMIT = 2 * DAY


def measure_predictors(traces: Path, models: Path, say: Callable[[str], None]) -> tuple[Section, ...]:
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
    observer = Observer(world, world, world, world)
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


def _section(loaded: Sequence[ArtifactPredictor], tick: list[Observation]) -> Section:
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
    return Section(
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
