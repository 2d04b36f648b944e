"""Predicts an immediate start where no job waits and nodes are idle: no history is needed for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobRequest
    from mirage.domain.snapshot import Snapshot

_LEVELS = (0.1, 0.5, 0.9)


def no_job_waits(snapshot: Snapshot, partition: str) -> bool:
    """Whether no job in the queue can start in the partition now; ``False`` also where that is not known.

    Jobs that depend on others or are held do not, nor links that are bound to their predecessors' nodes.
    """
    if snapshot.stale or _idle(snapshot, partition) is None:
        return False
    if partition not in snapshot.partition_names:
        return True
    jobs = snapshot.pending
    wanted = (jobs.eligible <= snapshot.time) & (jobs.partition == snapshot.partition_names.index(partition))
    bound = {int(job.job_id) for job in snapshot.links.values() if job.node_list}
    return not {int(job_id) for job_id in jobs.job_id[wanted]} - bound


def idle_start(observation: Observation) -> WaitForecast | None:
    """A start now, where enough nodes are idle and no other job waits for them; else ``None``.

    Only of plain nodes: which idle nodes have which GRES or features is not known here.
    """
    snapshot, request = observation.snapshot, observation.successor
    partition = request.partition or (observation.predecessor.partition if observation.predecessor else "")
    if _is_special(request) or not no_job_waits(snapshot, partition):
        return None
    if (idle := _idle(snapshot, partition) or 0) < request.nodes:
        return None
    basis = f"no job waits in partition {partition}, {idle} of its nodes are idle"
    return WaitForecast(_LEVELS, (observation.time,) * len(_LEVELS), basis)


def _idle(snapshot: Snapshot, partition: str) -> int | None:
    """Idle nodes; ``None`` where nothing is known of the partition."""
    return next((state.idle for state in snapshot.partitions if state.name == partition), None)


def _is_special(request: JobRequest) -> bool:
    return bool(request.gres_per_node or request.features or request.node_list or request.reservation)
