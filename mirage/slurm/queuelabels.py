"""Labels of queued jobs in addition to their columns: which are kept pending, and which are suspended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from mirage.domain.jobtable import JobLabels

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IN_TURN = (
    "",
    "None",
    "Priority",
    "Resources",
    "Reservation",
    "ReqNodeNotAvail",
    "NodeDown",
    "Cleaning",
    "Prolog",
    "SchedDefer",
)
"""Pending reasons of jobs that the scheduler starts once nodes are free for them."""
_NO_NODES = "Nodes required for job"
"""How a sentence begins that Slurm shows in place of ``Resources`` while such nodes are down or reserved."""


def waits_its_turn(reason: str) -> bool:
    """Whether a job with this pending reason, as squeue or slurmrestd has it, starts by waiting in the queue.

    Limits, holds, dependencies, begin times and closed partitions keep it pending whatever the queue does. A
    reason that is not known here counts as one of them.
    """
    words = reason.replace("_", " ")
    return words.partition(",")[0].partition("(")[0].strip() in _IN_TURN or words.startswith(_NO_NODES)


@dataclass(frozen=True, slots=True)
class QueueLabels(JobLabels):
    """Further columns, as long as ``job_id``."""

    kept_pending: NDArray[np.bool_]
    """Pending, and kept there by more than the queue: a limit, or nodes that it names."""
    suspended: NDArray[np.bool_]
    end: NDArray[np.int64]
    """When the time limit ends it, by Slurm: later than its start and limit say where it was suspended."""

    @classmethod
    def extending(
        cls,
        labels: JobLabels,
        kept_pending: NDArray[np.bool_],
        suspended: NDArray[np.bool_],
        end: NDArray[np.int64],
    ) -> Self:
        """``labels`` with these columns, whose rows are in the same order."""
        texts, gres = (labels.name, labels.account), (labels.gres, labels.gres_per_node)
        return cls(labels.job_id, *texts, *gres, labels.cpus, labels.memory_mb, kept_pending, suspended, end)


def jobs_kept_pending(labels: JobLabels, jobs: NDArray[np.int64]) -> frozenset[int]:
    """The jobs among these that more than the queue keeps pending; none where the labels do not show it."""
    return _marked(labels, labels.kept_pending, jobs) if isinstance(labels, QueueLabels) else frozenset()


def suspended_jobs(labels: JobLabels, jobs: NDArray[np.int64]) -> frozenset[int]:
    """The suspended jobs among these; none where the labels do not show it."""
    return _marked(labels, labels.suspended, jobs) if isinstance(labels, QueueLabels) else frozenset()


def ends_of(labels: JobLabels, jobs: NDArray[np.int64]) -> dict[int, int]:
    """When the time limits of these jobs end them, by their ids, where the labels show them."""
    if not isinstance(labels, QueueLabels):
        return {}
    rows = np.flatnonzero(np.isin(labels.job_id, jobs))
    return dict(zip(labels.job_id[rows].tolist(), labels.end[rows].tolist(), strict=True))


def _marked(labels: JobLabels, marks: NDArray[np.bool_], jobs: NDArray[np.int64]) -> frozenset[int]:
    ids = labels.job_id[marks]
    return frozenset(ids[np.isin(ids, jobs)].tolist())
