"""Predicts an immediate start where no job waits and nodes are idle: no history is needed for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobRequest
    from mirage.domain.snapshot import Snapshot

_LEVELS = (0.1, 0.5, 0.9)


def no_job_waits(snapshot: Snapshot, partitions: str) -> bool:
    """Whether no job in the queue can start in one of the partitions now; ``False`` also where that is not known.

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
    """A start now, where in a partition enough nodes are idle and no other job waits for them; else ``None``.

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


def _idle(snapshot: Snapshot, partition: str) -> int | None:
    """Idle nodes; ``None`` where nothing is known of the partition."""
    return next((state.idle for state in snapshot.partitions if state.name == partition), None)


def _is_special(request: JobRequest) -> bool:
    return bool(request.gres_per_node or request.features or request.node_list or request.reservation)
