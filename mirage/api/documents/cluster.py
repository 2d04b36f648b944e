"""The cluster in the last snapshot."""

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
    """One partition: nodes and jobs by state."""

    name: str
    """Partition name."""
    nodes: int
    """Number of nodes."""
    idle: int
    """Idle nodes."""
    allocated: int
    """Nodes with at least one job."""
    down: int
    """Nodes that are down or drained, or draining without a job."""
    pending: int
    """Pending jobs."""
    running: int
    """Running jobs."""
    pending_nodes: int
    """Nodes requested by pending jobs."""


class LoopDocument(Described):
    """The last cycle of the decision loop."""

    cycle: int
    """Cycles completed since the daemon started."""
    time: str | None
    """Start of the last cycle."""
    duration: float | None
    """Duration of the last cycle, in real seconds."""
    sentence: str
    """Result of the last cycle; for users who are not administrators: for their chains only."""


class ClusterDocument(Described):
    """The cluster, and the daemon's view of it."""

    now: str | None
    """Current time of Slurm's clock."""
    snapshot: str | None
    """Time of the snapshot."""
    stale_since: str | None
    """Time of the last answer, which all fields below show; ``null``: the cluster answers now."""
    backend: str
    """Slurm backend: cli, rest, pyslurm, or simulated."""
    slurm_version: str | None
    """Slurm version; ``null``: unknown."""
    pending: int
    """Pending jobs."""
    running: int
    """Running jobs."""
    partitions: list[PartitionDocument]
    """Partitions; a node in several of them counts in each."""
    chains: dict[str, int]
    """Number of the caller's chains (administrators: of all) by status: active, paused, done, stopped."""
    states: dict[str, int]
    """Number of these chains by state: starting, up, down, paused, done, failed, cancelled."""
    loop: LoopDocument
    """The decision loop and its last cycle."""
    agent: bool | None
    """Whether the caller's agent runs; ``null``: this daemon does not use agents."""


def partition_documents(status: Status) -> list[PartitionDocument]:
    """Return the partitions of the snapshot."""
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
    """Return the cluster document; ``about``: backend and Slurm version, ``agent``: whether the caller has one."""
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
    """Jobs and requested nodes by partition; a job that names several partitions counts in each."""
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
