"""Small clusters and requests, for scenarios whose outcome can be worked out manually."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirage.domain.job import JobRequest
from mirage.simulator.cluster import (
    ClusterConfig,
    NodeGroup,
    Partition,
    PriorityWeights,
    SchedulerParameters,
)
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from mirage.domain.job import JobId

T0 = 28_000_000 * 60
"""Where the scenarios start: on a minute, so that a planning grid of a minute adds no rounding."""

HOUR = 3600
PROMPT = SchedulerParameters(batch_sched_delay=0, bf_interval=30, sched_interval=60)
"""Slurm's intervals, with submissions considered immediately."""

NO_BACKFILL = replace(PROMPT, backfill=False)


def node_names(count: int, prefix: str = "n") -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in range(count))


def cluster(nodes: int = 4, cpus: int = 4, *, exclusive: bool = True, **changes: Any) -> ClusterConfig:
    """Identical nodes n0, n1, ... in one default partition "main"; ``changes`` are ``ClusterConfig``'s fields."""
    names = node_names(nodes)
    fields: dict[str, Any] = {
        "name": "small",
        "nodes": (NodeGroup(names=names, cpus=cpus),),
        "partitions": (Partition(name="main", nodes=names, exclusive=exclusive, default=True),),
        "scheduler": PROMPT,
    }
    return ClusterConfig(**(fields | changes))


def partition(name: str, nodes: tuple[str, ...], **changes: Any) -> Partition:
    """A whole-node partition; the one called "main" is the default."""
    return replace(
        Partition(name=name, nodes=nodes, exclusive=True, default=name == "main"),
        **changes,
    )


def ask(user: str = "ann", nodes: int = 1, limit: int = HOUR, **changes: Any) -> JobRequest:
    """A request of ``nodes`` nodes for ``limit`` seconds."""
    return JobRequest(name="job", user=user, limit=limit, nodes=nodes, **changes)


def simulate(config: ClusterConfig) -> Simulation:
    return Simulation(config, start=T0, log=True)


def after(sim: Simulation, seconds: int) -> Simulation:
    """The simulation, run until ``seconds`` after ``T0``."""
    sim.run_until(T0 + seconds)
    sim.check()
    return sim


def start(sim: Simulation, job_id: JobId | int) -> int:
    """When the job started, in seconds after ``T0``; negative where it has not."""
    begun = sim.job(job_id).start
    return begun - T0 if begun >= T0 else -1


def priority(sim: Simulation, job_id: JobId | int) -> int:
    """The priority of a pending job."""
    pending, _ = sim.columns()
    return int(pending.priority[pending.job_id.tolist().index(int(job_id))])


def weights(**changes: Any) -> PriorityWeights:
    """Priority weights, all zero but those given."""
    return PriorityWeights(**changes)
