"""The cluster as the last look at it showed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.api.documents.visible import Visible
    from mirage.control.status import Status
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns


class PartitionDocument(Described):
    """One partition: its nodes by state, its jobs by state."""

    name: str
    """As Slurm calls it."""
    nodes: int
    """In all."""
    idle: int
    """Nodes without a job that could take one."""
    allocated: int
    """With at least one job."""
    down: int
    """Down, drained or draining without a job."""
    pending: int
    """Jobs that wait for it."""
    running: int
    """Jobs that hold nodes of it."""
    pending_nodes: int
    """Nodes that pending jobs ask for."""


class LoopDocument(Described):
    """What the daemon's loop is at."""

    cycle: int
    """How many have ended since the daemon began."""
    time: str | None
    """When the last cycle began."""
    duration: float | None
    """Real seconds that it took."""
    sentence: str
    """What it did; for ordinary users: about their own chains."""


class ClusterDocument(Described):
    """The cluster, and the daemon's view of it."""

    now: str | None
    """By Slurm's clock."""
    snapshot: str | None
    """When the cluster was looked at."""
    stale_since: str | None
    """When it last answered, where it does not answer now: all below is as it was then."""
    backend: str
    """How Slurm is asked: cli, rest, pyslurm, or simulated."""
    slurm_version: str | None
    """``null``: not known."""
    pending: int
    """Jobs that wait."""
    running: int
    """Jobs that hold nodes."""
    partitions: list[PartitionDocument]
    """A node in several partitions counts in each."""
    chains: dict[str, int]
    """How many of one's own chains (administrators: of all) are active, paused, done, stopped."""
    states: dict[str, int]
    """How many of them are starting, up, down, paused, done, failed, cancelled."""
    loop: LoopDocument
    """What the daemon is at."""
    agent: bool | None
    """Whether an agent of the caller runs; ``null``: this daemon needs none."""


def partition_documents(status: Status) -> list[PartitionDocument]:
    """Every partition of the snapshot."""
    snapshot = status.snapshot
    pending = _counted(snapshot.pending, snapshot.partition_names)
    running = _counted(snapshot.running, snapshot.partition_names)
    return [
        PartitionDocument(
            name=partition.name,
            nodes=partition.total,
            idle=partition.idle,
            allocated=partition.allocated,
            down=partition.down,
            pending=pending.get(partition.name, (0, 0))[0],
            running=running.get(partition.name, (0, 0))[0],
            pending_nodes=pending.get(partition.name, (0, 0))[1],
        )
        for partition in snapshot.partitions
    ]


def cluster_document(
    status: Status,
    now: Seconds,
    seen: Visible,
    loop: LoopDocument,
    about: tuple[str, str | None],
    agent: bool | None,
) -> ClusterDocument:
    """All of it; ``about`` is the backend and Slurm's version, ``agent`` whether the caller has one."""
    return ClusterDocument(
        now=instant(now),
        snapshot=instant(status.snapshot.time) if status.cycles else None,
        stale_since=instant(status.stale_since),
        backend=about[0],
        slurm_version=about[1],
        pending=len(status.snapshot.pending),
        running=len(status.snapshot.running),
        partitions=partition_documents(status),
        chains=seen.by_status,
        states=seen.by_state,
        loop=loop,
        agent=agent,
    )


def _counted(jobs: JobColumns, names: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Jobs, and the nodes that they ask for, by partition; a job that waits for any of several counts in each."""
    known = jobs.partition >= 0
    codes, nodes = jobs.partition[known], np.maximum(jobs.nodes[known], 0)
    counts = np.bincount(codes, minlength=len(names))
    asked = np.bincount(codes, weights=nodes, minlength=len(names))
    found: dict[str, tuple[int, int]] = {}
    for name, count, total in zip(names, counts.tolist(), asked.tolist(), strict=True):
        for each in name.split(","):
            before = found.get(each, (0, 0))
            found[each] = (before[0] + count, before[1] + int(total))
    return found
