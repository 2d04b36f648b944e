"""Compile the simulator's functions that a daemon calls, before a caller waits for them."""

from __future__ import annotations

from functools import cache

from mirage.backends.simulated import SimulatedCluster
from mirage.bootstrap.simulated import background
from mirage.control.observing import Observer
from mirage.domain.job import JobChange, JobRequest
from mirage.predictors.lookahead import Lookahead
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation

_NOW = 1_800_000_000
"""Any time: the load of the preset is moved to it."""
_HOUR = 3_600


@cache
def compile_simulator() -> None:
    """Call everything on a small cluster, once a process.

    It takes about a minute where nothing is compiled yet, else a second.
    What is compiled is kept in the user's cache (``mirage.simulator.kernel.compile``).
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
    observer = Observer(cluster, cluster, cluster, cluster)
    lookahead.predict(observer.observe(cluster.snapshot(), None, request, lookahead.wants))
    cluster.estimate_start(request)
