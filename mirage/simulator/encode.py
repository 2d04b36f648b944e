"""Jobs turned into the kernel's rows: requests from outside and whole traces.

Both ways end in the same ``Shape`` of a job (partition, nodes, needs per node, limit), checked against the
cluster as slurmctld does with EnforcePartLimits: what can never run is rejected with Slurm's reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import UNLIMITED, JobState
from mirage.simulator.kernel.layout import FREE, GROUPS_PER_JOB, JOB, NEVER

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.cluster import Partition
    from mirage.simulator.model import ClusterTables

Int64 = NDArray[np.int64]
Table = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a request that decide where and how long a job may run."""

    partition: int
    nodes: int
    limit: int
    cpus_per_node: int = 0
    memory_mb_per_node: int = 0
    gres_per_node: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """A shape that the cluster can run: resources per node and in all, and its fixed priority."""

    exclusive: bool
    limit: int
    per_node: Int64
    total: Int64
    """By resource, then nodes."""
    features: int
    static_priority: float
    billing: float


def fit(model: ClusterTables, shape: Shape) -> Fit:
    """Check a shape against its partition. Raises ``SubmissionRejected`` with Slurm's reason."""
    partition = model.cluster.partitions[shape.partition]
    limit = _limit(model, partition, shape.limit)
    _check_node_count(partition, shape.nodes)
    exclusive = partition.exclusive or shape.exclusive
    try:
        needs = model.resources.vector(max(shape.cpus_per_node, 1), shape.memory_mb_per_node, shape.gres_per_node)
    except KeyError as unknown:
        raise SubmissionRejected("InvalidGRES", f"no node has {unknown.args[0]}") from None
    features = _feature_bits(model, shape.features)
    found = np.flatnonzero(hosts(model, shape, needs))
    if len(found) < shape.nodes:
        raise SubmissionRejected(
            "ReqNodeNotAvail" if len(found) else "BadConstraints",
            f"partition {partition.name} has {len(found)} nodes for it, {shape.nodes} asked",
        )
    used = model.capacity[found[0], :-1] if exclusive else needs
    total = np.append(used * shape.nodes, shape.nodes)
    return Fit(
        exclusive,
        limit,
        needs,
        total,
        features,
        _static_priority(model, shape, total),
        _billing(partition, model, total),
    )


def _limit(model: ClusterTables, partition: Partition, limit: int) -> int:
    wanted = limit if limit > 0 else model.default_limit(partition)
    if wanted > partition.max_time:
        raise SubmissionRejected(
            "PartitionTimeLimit",
            f"{wanted} s asked, partition {partition.name} allows {partition.max_time} s",
        )
    return min(wanted, UNLIMITED)


def _check_node_count(partition: Partition, nodes: int) -> None:
    most = min(partition.max_nodes or len(partition.nodes), len(partition.nodes))
    if not max(partition.min_nodes, 1) <= nodes <= most:
        raise SubmissionRejected(
            "PartitionNodeLimit",
            f"{nodes} nodes asked, partition {partition.name} allows {max(partition.min_nodes, 1)}-{most}",
        )


def _feature_bits(model: ClusterTables, features: tuple[str, ...]) -> int:
    bits = 0
    for feature in features:
        if feature not in model.features:
            raise SubmissionRejected("InvalidFeature", f"no node has feature {feature}")
        bits |= 1 << model.features.index(feature)
    return bits


def hosts(model: ClusterTables, shape: Shape, needs: Int64) -> NDArray[np.bool_]:
    """Which nodes could run the shape when empty, as a mask over the node numbers."""
    mask = model.members[shape.partition] & (model.capacity[:, :-1] >= needs).all(axis=1)
    for feature in shape.features:
        mask &= model.feature_members[model.features.index(feature)]
    return mask


def _size_factor(model: ClusterTables, nodes: int, cpus: int, limit: int) -> float:
    """priority/multifactor's job size: the mean of the shares of nodes and of CPUs, or one less that."""
    weights, all_nodes, all_cpus = model.cluster.priority, len(model.node_names), model.cluster.cpu_count
    if weights.small_relative_to_time:
        return cpus / max(limit / 60, 1) / all_cpus
    share = (nodes / all_nodes + cpus / all_cpus) / 2
    return 1 - share if weights.favor_small else share


def _static_priority(model: ClusterTables, shape: Shape, total: Int64) -> float:
    """The weighted factors that a job keeps while it waits: size, partition, TRES."""
    weights, partitions = model.cluster.priority, model.cluster.partitions
    most = max((p.priority_job_factor for p in partitions), default=0)
    own = partitions[shape.partition].priority_job_factor
    value = weights.job_size * _size_factor(model, int(total[-1]), int(total[0]), shape.limit)
    value += weights.partition * (own / most if most else 0.0)
    for name, weight in weights.tres:
        column = model.resources.index(name)
        if 0 <= column < len(model.resources):
            available = model.capacity[model.members[shape.partition], column].sum()
            value += weight * (total[column] / available if available else 0.0)
    return float(value)


def _billing(partition: Partition, model: ClusterTables, total: Int64) -> float:
    """Usage per second: TRESBillingWeights summed, one per CPU without them."""
    if not partition.billing_weights:
        return float(total[0])
    columns = ((model.resources.index(name), weight) for name, weight in partition.billing_weights)
    return float(sum(weight * total[column] for column, weight in columns if column >= 0))


def quality_priority(model: ClusterTables, qos: str) -> float:
    """The weighted QOS factor: its priority over the highest of all."""
    most = max((q.priority for q in model.cluster.qos), default=0)
    if most <= 0 or qos not in model.qos:
        return 0.0
    return model.cluster.priority.qos * model.qos[qos].priority / most


def association_priority(model: ClusterTables, accounts: Accounts, row: int) -> float:
    """The weighted association factor: its priority over the highest of all."""
    most = max((a.priority for a in model.cluster.associations), default=0)
    return (
        model.cluster.priority.association * accounts.rows[row].priority / most if most > 0 and row >= 0 else 0.0
    )


def blank_rows(count: int) -> Table:
    """JOB rows with what most jobs share."""
    rows = np.zeros(count, dtype=JOB)
    for name in (
        "row",
        "own",
        "association",
        "qos",
        "name",
        "reservation",
        "array",
        "first_alloc",
        "first_waiter",
    ):
        rows[name] = -1
    for name in ("eligible", "accrue", "cancel_at", "start", "end", "limit_end", "expected"):
        rows[name] = NEVER
    rows["status"], rows["next_free"] = FREE, -1
    rows["requeue"], rows["outcome"] = 1, int(JobState.COMPLETED)
    return rows


def needs_row(found: Fit, groups: list[int]) -> Int64:
    """A row of World.needs: per node, in all, nodes, limit groups."""
    padded = np.full(GROUPS_PER_JOB, -1, dtype=np.int64)
    padded[: len(groups)] = groups
    return np.concatenate([found.per_node, found.total, padded])


def request_shape(model: ClusterTables, request: JobRequest) -> Shape:
    """The shape of a request. Raises ``SubmissionRejected`` for an unknown partition."""
    partition = model.partition_index.get(request.partition, -1) if request.partition else model.default_partition
    if partition < 0:
        raise SubmissionRejected("PartitionInvalid", f"no partition {request.partition}")
    return Shape(
        partition,
        request.nodes,
        request.limit,
        request.cpus_per_node,
        request.memory_mb_per_node,
        request.gres_per_node,
        request.features,
        request.exclusive,
    )


@dataclass(frozen=True, slots=True)
class JobCeiling:
    """Limits of associations and QOS for a single job: longest time and resources in all, with their reasons."""

    walls: tuple[tuple[int, str], ...] = ()
    tres: tuple[tuple[int, int, str], ...] = ()
    """(resource column, most, reason)."""

    def refusal(self, limit: int, total: Int64) -> str:
        """Slurm's reason for rejecting a job with this limit and these totals; "" if nothing stands against it."""
        for most, reason in self.walls:
            if limit > most:
                return reason
        for column, most, reason in self.tres:
            if total[column] > most:
                return reason
        return ""


def job_ceiling(model: ClusterTables, accounts: Accounts, row: int, qualities: tuple[str, ...]) -> JobCeiling:
    """The ceilings on one job of an association (``row``) with the QOS of job and partition."""
    if not model.cluster.enforce_limits:
        return JobCeiling()
    walls, tres = [], []
    wall = accounts.inherited(row, "max_wall")
    if wall >= 0:
        walls.append((wall, "AssocMaxWallDurationPerJobLimit"))
    for quality in (model.qos[name] for name in qualities if name in model.qos):
        if quality.max_wall >= 0:
            walls.append((quality.max_wall, "QOSMaxWallDurationPerJobLimit"))
        for name, most in quality.max_tres_per_job.limits:
            column = model.resources.index(name)
            if column >= 0:
                tres.append((column, most, "QOSMaxTRESPerJob"))
    return JobCeiling(tuple(walls), tuple(tres))


def known_qos(model: ClusterTables, qos: str) -> bool:
    """Whether the QOS exists; any does on a cluster that lists none."""
    return not qos or qos in model.qos or not model.qos
