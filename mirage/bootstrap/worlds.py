"""The side that faces Slurm, one builder a back end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.control.wallclock import AcceleratedClock, WallClock, read_clock
from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.config.model import ClusterSection, Config, SimulatedSection
    from mirage.control.wallclock import RealTimeClock
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Actuator, Cluster, StartEstimator

_WARM_UP = 3 * 86_400
"""Simulated seconds of background load before the daemon begins: an empty cluster has no queue."""


@dataclass(frozen=True, slots=True)
class World:
    """What the daemon has of a cluster."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator
    clock: RealTimeClock


def build_world(config: Config) -> World:
    """The cluster that the configuration names. Raises ``ConfigError``."""
    if config.cluster.backend == "simulated":
        return _simulated(config.cluster.simulated, Path(config.service.state))
    raise ConfigError("cluster.backend", f"{config.cluster.backend} is not supported")


def slurm_clock(section: ClusterSection) -> RealTimeClock:
    """The clock of the Slurm that the daemon speaks to. Raises ``ConfigError``."""
    return read_clock(Path(section.clock)) if section.clock else WallClock()


def _simulated(section: SimulatedSection, state: Path) -> World:
    from mirage.backends.paced import PacedCluster
    from mirage.backends.simulated import SimulatedCluster
    from mirage.simulator.configuration.clusterfile import read_cluster
    from mirage.simulator.simulation import Simulation

    clock = _own_clock(state / "simulated-clock.json", section.rate)
    config, _ = read_cluster(section.cluster)
    simulation = Simulation(config, _background(section.trace, clock.now()), start=clock.now())
    cluster = PacedCluster(SimulatedCluster(simulation), clock)
    return World(cluster, cluster, cluster, clock)


def _own_clock(file: Path, rate: float) -> AcceleratedClock:
    """The simulated clock; it goes on where it was when the daemon is started again."""
    if file.exists() and (clock := read_clock(file)).rate == rate:
        return clock
    clock = AcceleratedClock(time.time(), rate)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"t0": clock.t0, "rate": clock.rate}), encoding="utf-8")
    new.replace(file)
    return clock


def _background(trace: str, now: Seconds) -> JobTable | None:
    """The load of ``trace`` moved in time, so that it has run for some days by ``now``."""
    if not trace:
        return None
    from mirage.trace.generator import generate
    from mirage.trace.readers import read_trace

    kind, _, rest = trace.partition(":")
    try:
        preset, _, seed = rest.partition(":")
        table = generate(preset, int(seed or 0)) if kind == "generated" else read_trace(Path(trace)).table
    except (TraceError, ValueError) as error:
        raise ConfigError("cluster.simulated.trace", str(error)) from error
    return _moved(table, now - _WARM_UP - int(table.submit[0]))


def _moved(table: JobTable, by: Seconds) -> JobTable:
    instants = {name: getattr(table, name) for name in ("submit", "eligible", "start", "end")}
    return replace(table, **{name: np.where(at == ABSENT, at, at + by) for name, at in instants.items()})
