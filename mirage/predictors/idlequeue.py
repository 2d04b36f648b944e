"""Predictions from the current queue where little history is known: an immediate start, or waits so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import RecentWaits, WaitForecast
from mirage.features.waitclass import ENOUGH

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobRequest
    from mirage.domain.snapshot import Snapshot

_LEVELS = (0.1, 0.5, 0.9)


def no_job_waits(snapshot: Snapshot, partitions: str) -> bool:
    """Return whether no queued job can start in one of the partitions now; ``False`` also if unknown.

    ``partitions``: comma-separated several. Jobs that depend on others or are held do not count, nor links that
    are
    bound to their predecessors' nodes.
    """
    return any(_is_clear(snapshot, partition) for partition in partitions.split(","))


def _is_clear(snapshot: Snapshot, partition: str) -> bool:
    if snapshot.stale or _idle(snapshot, partition) is None:
        return False
    if partition not in snapshot.partition_names:
        return True
    jobs = snapshot.pending
    wanted = (jobs.eligible <= snapshot.time) & (jobs.partition == snapshot.partition_names.index(partition))
    bound = {int(job.job_id) for job in snapshot.links.values() if job.node_list}
    return not {int(job_id) for job_id in jobs.job_id[wanted]} - bound


def idle_start(observation: Observation) -> WaitForecast | None:
    """Return a start now if a partition has enough idle nodes and no other pending job; else ``None``.

    Only of plain nodes: which idle nodes have which GRES or features is not known here.
    """
    snapshot, request = observation.snapshot, observation.successor
    partitions = request.partition or (observation.predecessor.partition if observation.predecessor else "")
    if _is_special(request):
        return None
    for partition in partitions.split(","):
        idle = _idle(snapshot, partition) or 0
        if idle >= request.nodes and _is_clear(snapshot, partition):
            basis = f"no job waits in partition {partition}, {idle} of its nodes are idle"
            return WaitForecast(_LEVELS, (observation.time,) * len(_LEVELS), basis)
    return None


def with_waiting_jobs(observation: Observation) -> tuple[Observation, int]:
    """Add the waits of pending jobs if fewer than ``ENOUGH`` waits are known; return their number too.

    Only jobs of the partition that request at most the successor's nodes and time. A pending job has waited for
    half of its time in the median, so twice its wait so far counts.
    """
    known, snapshot, request = observation.waits, observation.snapshot, observation.successor
    if not 0 < len(known.wait) < ENOUGH or request.partition not in snapshot.partition_names:
        return observation, 0
    jobs = snapshot.pending
    where = snapshot.partition_names.index(request.partition)
    alike = (jobs.partition == where) & (jobs.eligible <= snapshot.time)
    alike &= (jobs.nodes <= request.nodes) & (jobs.limit <= request.limit)
    alike &= ~np.isin(jobs.job_id, [int(job.job_id) for job in snapshot.links.values() if job.node_list])
    some = jobs.take(np.flatnonzero(alike)[-ENOUGH:])
    so_far = snapshot.time - np.maximum(some.submit, some.eligible)
    waits = RecentWaits(
        np.concatenate([known.start, np.full(len(some), snapshot.time)]),
        np.concatenate([known.wait, 2 * np.maximum(so_far, 0)]),
        np.concatenate([known.nodes, some.nodes]),
        np.concatenate([known.limit, some.limit]),
        known.partition,
    )
    return (replace(observation, waits=waits), len(some)) if len(some) else (observation, 0)


def _idle(snapshot: Snapshot, partition: str) -> int | None:
    """Return the idle nodes; ``None`` for an unknown partition."""
    return next((state.idle for state in snapshot.partitions if state.name == partition), None)


def _is_special(request: JobRequest) -> bool:
    return bool(request.gres_per_node or request.features or request.node_list or request.reservation)
