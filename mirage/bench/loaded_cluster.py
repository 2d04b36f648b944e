"""A simulated cluster with all nodes taken, a queue of any length, and chains whose links run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.backends.simulated import SimulatedCluster
from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import Link, LinkState
from mirage.simulator.cluster import Association, with_nodes
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation
from mirage.trace.generator import generate

if TYPE_CHECKING:
    from mirage.bench.standin import Size
    from mirage.domain.chain import ChainRecord
    from mirage.domain.jobtable import JobTable

HOUR = 3_600
_LATER = 600
"""Seconds from what takes the nodes, an hour after the chains, to what waits for them."""
_SHORTEST = 4 * HOUR
"""No background job ends while cycles are measured."""


@dataclass(frozen=True, slots=True)
class SteppedClock:
    """The simulation's clock, which moves only when it is advanced."""

    cluster: SimulatedCluster
    rate: float = 1.0

    def now(self) -> int:
        """The time of the simulation, in seconds."""
        return self.cluster.now()


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """A cluster, and the chains that have a link in it."""

    cluster: SimulatedCluster
    chains: tuple[ChainRecord, ...]

    def world(self) -> ClusterConnection:
        """The simulated cluster as the daemon's connection to a cluster."""
        simulation = self.cluster.simulation
        lore = ClusterInfo(jobs=self.cluster, standings=self.cluster, description=lambda: simulation.cluster)
        return ClusterConnection(self.cluster, self.cluster, self.cluster, SteppedClock(self.cluster), lore)


def crowded_cluster(size: Size, records: tuple[ChainRecord, ...], seed: int) -> LoadedCluster:
    """``size.nodes`` nodes like those of ``ls6``; ``records`` get links that run there before the queue fills."""
    config = replace(with_nodes(load_cluster("ls6"), size.nodes), default_association=Association(account=""))
    crowd = _crowd(size, seed)
    begin = int(crowd.submit[0]) - HOUR
    cluster = SimulatedCluster(Simulation(config, crowd, start=begin))
    partition = config.partitions[0].name
    placed = [_submitted(cluster, record, partition) for record in records]
    cluster.advance(begin + 2 * HOUR)
    return LoadedCluster(cluster, tuple(_running(cluster, record) for record in placed))


def _crowd(size: Size, seed: int) -> JobTable:
    """A job for each node that no chain has, and then ``size.pending`` of all sizes."""
    drawn = generate("ls6", seed, jobs=4 * (size.nodes + size.pending))
    drawn = drawn.take(drawn.start != ABSENT)
    filling = np.flatnonzero((drawn.nodes == 1) & (drawn.limit > _SHORTEST))[: size.nodes - size.chains]
    waiting = np.setdiff1d(np.arange(len(drawn)), filling)[: size.pending]
    crowd = drawn.take(np.concatenate((filling, waiting)))
    submit = np.repeat(drawn.submit[0] + np.array([0, _LATER]), (len(filling), len(waiting)))
    end = submit + np.maximum(crowd.runtime, _SHORTEST)
    return replace(crowd, submit=submit, eligible=submit, start=submit, end=end)


def _submitted(cluster: SimulatedCluster, record: ChainRecord, partition: str) -> ChainRecord:
    chain, link = record.chain, record.links[-1]
    request = replace(chain.request, partition=partition)
    job_id = cluster.submit(replace(request, tag=link.tag))
    return replace(record, chain=replace(chain, request=request), links=(replace(link, job_id=job_id),))


def _running(cluster: SimulatedCluster, record: ChainRecord) -> ChainRecord:
    """The record in the database after a poll has seen the link run."""
    link = record.links[-1]
    job = cluster.simulation.job(link.job_id)
    assert job.state is JobState.RUNNING, "links are submitted to an empty cluster"
    seen = Link(
        link.index, link.tag, job.submit, LinkState.RUNNING, job.job_id, job.submit, job.start, job.end, job.state
    )
    return replace(record, links=(seen,))
