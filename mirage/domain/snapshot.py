"""Result of one poll of the cluster, frozen for the whole cycle."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, Job, Seconds
from mirage.domain.jobtable import JobLabels

if TYPE_CHECKING:
    from collections.abc import Mapping

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Many jobs as columns of equal length; text columns hold codes into the snapshot's vocabularies."""

    job_id: Column
    user: Column
    partition: Column
    qos: Column
    nodes: Column
    limit: Column
    submit: Column
    eligible: Column
    """When it became eligible; later than the snapshot's time for held or dependent jobs (``NEVER``)."""
    start: Column
    """Running: when it started. Pending: Slurm's planned start, ``ABSENT`` where it has none."""
    priority: Column
    series: Column
    """Equal for jobs of one user and name, digits in the name aside (``mirage.domain.jobtable``)."""

    def __len__(self) -> int:
        return len(self.job_id)

    @classmethod
    def none(cls) -> JobColumns:
        """Return columns without rows."""
        return cls(*(np.empty(0, dtype=np.int64),) * len(cls.__dataclass_fields__))

    def take(self, rows: NDArray[Any]) -> JobColumns:
        """The chosen rows (index array or mask), in that order."""
        return JobColumns(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Nodes of one partition, counted by state."""

    name: str
    total: int
    idle: int
    allocated: int
    """With at least one job."""
    down: int
    """Down, drained or draining without a job."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queue and the nodes at one time."""

    time: Seconds
    pending: JobColumns
    running: JobColumns
    partitions: tuple[PartitionState, ...]
    users: tuple[str, ...]
    partition_names: tuple[str, ...]
    qos_names: tuple[str, ...]
    links: Mapping[str, Job] = field(default_factory=dict)
    """Jobs that carry a Mirage tag, by tag, also when recently ended."""
    rivals: tuple[Job, ...] = ()
    """Further jobs with a tag that is in ``links`` already: any user may write any comment."""
    unaccounted: frozenset[str] = frozenset()
    """Tags of expected links that have left the queue and whose end accounting does not show now."""
    stock: tuple[Job, ...] | None = None
    """Jobs with a Mirage tag that their owners hold until the loop asks for them; none of them is in ``links``.
    ``None``: links are submitted, not released."""
    stale_since: Seconds = ABSENT
    """When the cluster last answered, where this is not its present state: then the only decision is Hold."""
    labels: JobLabels = field(default_factory=JobLabels.none)
    """Never stored, and of no weight to any decision: what people call their jobs is theirs."""
    unmarked: frozenset[str] = frozenset()
    """Tags of links that are in the queue without them: their owner, or a plugin of Slurm, replaces comments."""

    def with_queue_of(self, earlier: Snapshot) -> Snapshot:
        """The same links with the queue and the nodes of an earlier snapshot."""
        return replace(
            self,
            pending=earlier.pending,
            running=earlier.running,
            partitions=earlier.partitions,
            users=earlier.users,
            partition_names=earlier.partition_names,
            qos_names=earlier.qos_names,
            labels=earlier.labels,
        )

    @classmethod
    def unseen(cls, time: Seconds) -> Snapshot:
        """Stands for a cluster that has never answered: nothing is known, and it is stale."""
        return cls(time, JobColumns.none(), JobColumns.none(), (), (), (), (), stale_since=time)

    def link(self, tag: str, owner: str) -> Job | None:
        """The owner's job with this tag; others' are none of ours."""
        first = self.links.get(tag)
        if first is None or first.user == owner:
            return first
        return next((job for job in self.rivals if job.tag == tag and job.user == owner), None)

    @property
    def stale(self) -> bool:
        """Whether the cluster could not be asked this cycle."""
        return self.stale_since != ABSENT
