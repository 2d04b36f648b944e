"""Jobs that started, and how to see them start between two snapshots. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NEVER, JobState
from mirage.domain.jobtable import Names
from mirage.domain.jobtraits import JobTraits

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot

Int64 = NDArray[np.int64]

_CLOCKS_APART: Seconds = 300
"""Slurm's clock and ours may differ; munge rejects to work beyond this."""


@dataclass(frozen=True, slots=True)
class StartedJobs:
    """Jobs that have started, as columns of equal length, in any order.

    A job is known by its id and its submission: a requeued job is submitted again.
    """

    job_id: Int64
    submit: Int64
    start: Int64
    """Never before ``submit``."""
    nodes: Int64
    limit: Int64
    """Requested walltime in seconds."""
    partition: Int64
    """Codes into ``partition_names``; -1: not known."""
    partition_names: tuple[str, ...]
    traits: JobTraits | None = None
    """``None``: not known of any."""
    eligible: Int64 | None = None
    """When each became eligible; ``ABSENT``, or ``None`` of all: not known; ``NEVER``: its wait does not count."""

    def __len__(self) -> int:
        return len(self.job_id)

    def without(self, ids: Collection[int]) -> StartedJobs:
        """Those that are none of these jobs."""
        rows = np.flatnonzero(~np.isin(self.job_id, list(ids)))
        if len(rows) == len(self):
            return self
        traits = self.traits.take(rows) if self.traits is not None else None
        eligible = self.eligible[rows] if self.eligible is not None else None
        return StartedJobs(
            self.job_id[rows],
            self.submit[rows],
            self.start[rows],
            self.nodes[rows],
            self.limit[rows],
            self.partition[rows],
            self.partition_names,
            traits,
            eligible,
        )

    def check(self) -> None:
        """Raise ``ValueError`` where columns differ in length or a job starts before it was submitted."""
        columns = (self.submit, self.start, self.nodes, self.limit, self.partition)
        lengths = {len(column) for column in columns}
        lengths |= {len(column) for column in (self.traits, self.eligible) if column is not None}
        if lengths != {len(self)}:
            raise ValueError("the columns of started jobs differ in length")
        if bool(np.any(self.start < self.submit)):
            first = int(self.job_id[np.argmax(self.start < self.submit)])
            raise ValueError(f"job {first} starts before it was submitted")


def started(previous: Snapshot, current: Snapshot) -> StartedJobs:
    """The jobs that run in ``current`` and had not started when ``previous`` was taken.

    A job that started and ended in between is not seen; accounting knows those. Snapshots without a queue and
    those that are stale give and take nothing: what merely was not looked at did not start just now, and counting
    it would favour jobs that run long. Links that were bound to their predecessors' nodes have waited for these,
    whatever the queue: they are marked as never eligible, and their waits do not count.
    """
    running = current.running
    new = ~_among(running, previous.running) & (running.start >= previous.time - _CLOCKS_APART)
    new &= (running.submit >= 0) & (running.start >= running.submit)
    if current.stale:
        new[:] = False
    return StartedJobs(
        running.job_id[new],
        running.submit[new],
        running.start[new],
        running.nodes[new],
        running.limit[new],
        running.partition[new],
        current.partition_names,
        _traits(current, new),
        np.where(np.isin(running.job_id[new], _bound(previous)), NEVER, running.eligible[new]),
    )


def _bound(snapshot: Snapshot) -> list[int]:
    """Links that wait for nodes by name, of whatever daemon."""
    links = (*snapshot.links.values(), *snapshot.rivals)
    return [int(job.job_id) for job in links if job.state is JobState.PENDING and job.node_list]


def _traits(snapshot: Snapshot, chosen: NDArray[np.bool_]) -> JobTraits:
    """Those of the chosen running jobs; account and GRES are among the labels, which may lack a job."""
    running, labels = snapshot.running, snapshot.labels
    qos = Names(running.qos[chosen].astype(np.int32), snapshot.qos_names)
    rows = _rows(labels.job_id, running.job_id[chosen])
    if not len(labels.job_id):
        return replace(JobTraits.unknown(len(rows)), qos=qos)
    codes = {name: np.where(rows >= 0, getattr(labels, name).codes[rows], -1) for name in ("account", "gres")}
    texts = {name: replace(getattr(labels, name), codes=found) for name, found in codes.items()}
    counts = np.where(rows >= 0, labels.gres_per_node[rows], ABSENT)
    return JobTraits(qos=qos, gres_per_node=counts, **texts)


def _rows(known: Int64, wanted: Int64) -> Int64:
    """Return the position of each of ``wanted`` in ``known``; -1 if missing."""
    if not len(known) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    candidates = np.flatnonzero(np.isin(known, wanted))
    if not len(candidates):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = candidates[np.argsort(known[candidates], kind="stable")]
    at = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where(known[at] == wanted, at, -1)


def _among(jobs: JobColumns, known: JobColumns) -> NDArray[np.bool_]:
    """Which jobs are among the known ones, with the same start."""
    if not len(known):
        return np.zeros(len(jobs), dtype=np.bool_)
    order = np.argsort(known.job_id, kind="stable")
    ids, starts = known.job_id[order], known.start[order]
    at = np.minimum(np.searchsorted(ids, jobs.job_id), len(ids) - 1)
    same: NDArray[np.bool_] = (ids[at] == jobs.job_id) & (starts[at] == jobs.start)
    return same
