"""The cluster that needs no Slurm: a simulation under a background load, in real or accelerated time.

What a daemon calls of the simulator is compiled before a caller waits for it.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.atomic_file import write_atomically
from mirage.backends.simulated import PacedCluster, SimulatedCluster
from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo
from mirage.control.clocks import AcceleratedClock, read_clock
from mirage.control.observations import ObservationBuilder
from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT, JobChange, JobRequest
from mirage.predictors.lookahead import Lookahead
from mirage.simulator.configuration.clusterfile import load_cluster, read_cluster
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from mirage.config.model import SimulatedSection
    from mirage.control.clocks import RealTimeClock
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable

CLOCK = "simulated-clock.json"
"""File of the state directory."""
SIMULATED = "simulated"
"""The name of this cluster."""
_WARM_UP = 9 * 86_400
"""Simulated seconds of background load before the daemon begins: an empty cluster has no queue, and look-ahead
draws what may come from at least a week."""
_DAYS = 60
"""Length of a generated load, in seconds."""


def simulated_world(section: SimulatedSection, state: Path) -> ClusterConnection:
    """A simulation with a separate clock, stored in the directory ``state``. Raises ``ConfigError``."""
    return simulated_connection(section, _own_clock(state / CLOCK, section.rate))


def simulated_connection(section: SimulatedSection, clock: RealTimeClock) -> ClusterConnection:
    """A simulation that follows ``clock`` and starts at its present time. Raises ``ConfigError``."""
    config, _ = read_cluster(section.cluster)
    now = clock.now()
    cluster = PacedCluster(SimulatedCluster(Simulation(config, background(section.trace, now), start=now)), clock)
    lore = ClusterInfo(
        jobs=cluster,
        standings=cluster,
        sharing=cluster,
        hides_jobs=lambda: False,
        name=lambda: SIMULATED,
        description=lambda: config,
        copied=lambda _: section.cluster,
    )
    return ClusterConnection(cluster, cluster, cluster, clock, lore)


def _own_clock(file: Path, rate: float) -> AcceleratedClock:
    """The simulated clock; it continues when the daemon is started again."""
    if file.exists() and (clock := read_clock(file)).rate == rate:
        return clock
    clock = AcceleratedClock(time.time(), rate)
    write_atomically(file, json.dumps({"t0": clock.t0, "rate": clock.rate}).encode())
    return clock


def background(trace: str, now: Seconds) -> JobTable | None:
    """The load of ``trace`` moved in time, so that it has run for some days by ``now``."""
    if not trace:
        return None
    kind, _, rest = trace.partition(":")
    preset, _, seed = rest.partition(":")
    try:
        drawn = kind == "generated"
        table = generate(preset, int(seed or 0), days=_DAYS) if drawn else read_trace(Path(trace)).table
    except (TraceError, ValueError) as error:
        raise ConfigError("cluster.simulated.trace", str(error)) from error
    if not len(table.submit):
        raise ConfigError("cluster.simulated.trace", f"{trace}: has no jobs; choose another trace, or omit it")
    return _moved(table, now - _WARM_UP - int(table.submit[0]))


def _moved(table: JobTable, by: Seconds) -> JobTable:
    instants = {name: getattr(table, name) for name in ("submit", "eligible", "start", "end")}
    return replace(table, **{name: np.where(at == ABSENT, at, at + by) for name, at in instants.items()})


_NOW = 1_800_000_000
"""Any time: the load of the preset is moved to it."""
_HOUR = 3_600


@cache
def compile_simulator() -> None:
    """Call everything on a small cluster, once a process.

    It takes about a minute where nothing is compiled yet, else a second.
    What is compiled is kept in the user's cache (``mirage.kernel_compiler``).
    """
    config = load_cluster("demo")
    cluster = SimulatedCluster(Simulation(config, background("generated:demo:1", _NOW), start=_NOW))
    request = JobRequest("compile", "nobody", _HOUR, partition="npu", held=True)
    cluster.cancel(cluster.submit(request), "nobody")
    job = cluster.submit(request)
    for change in (JobChange(nice=1), JobChange(begin=_NOW + _HOUR), JobChange(node_list="npu01")):
        cluster.update(job, "nobody", change)
    cluster.update(job, "nobody", JobChange(held=False))
    cluster.advance(_NOW + 2 * _HOUR)
    cluster.cancel(job, "nobody")
    lookahead = Lookahead(config)
    observer = ObservationBuilder(cluster, cluster, cluster, cluster)
    lookahead.predict(observer.observe(cluster.snapshot(), None, request, lookahead.wants))
    cluster.estimate_start(request)
