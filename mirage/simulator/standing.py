"""Grants of a simulated controller to a user, in the form in which a real one reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import NO_LIMIT, Standing
from mirage.domain.job import ABSENT
from mirage.simulator.cluster import FairShare
from mirage.simulator.kernel.layout import G_JOBS

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.cluster import ClusterConfig, Partition
    from mirage.simulator.kernel.layout import World
    from mirage.simulator.model import Model

_NOT_KNOWN = float("nan")


def standing_of(model: Model, accounts: Accounts, world: World, request: JobRequest, now: int) -> Standing:
    """That of the request's user for such a job; nothing changes."""
    partition = _partition(model.cluster, request.partition)
    accounts = accounts.copy()
    row = accounts.association(request.user, request.account)
    known = 0 <= row < len(world.associations)
    shared = known and model.cluster.priority.fair_share_algorithm is not FairShare.NONE
    return Standing(
        fair_share=float(world.associations[row]["factor"]) if shared else _NOT_KNOWN,
        jobs_left=_jobs_left(model, accounts, world, request, row, partition),
        reserved_nodes=_reserved(model.cluster, request, partition, now),
    )


def _partition(cluster: ClusterConfig, name: str) -> Partition | None:
    named = (p for p in cluster.partitions if (p.name == name if name else p.default))
    return next(named, cluster.partitions[0] if not name and len(cluster.partitions) == 1 else None)


def _jobs_left(
    model: Model, accounts: Accounts, world: World, request: JobRequest, row: int, partition: Partition | None
) -> int:
    if row < 0:
        return ABSENT
    names = (request.qos, partition.qos if partition is not None else "")
    qualities = tuple(model.qos[name] for name in names if name in model.qos)
    groups = accounts.groups_of(row, request.user, request.account, qualities)
    running = world.groups[:, G_JOBS]
    left = [
        max(accounts.groups[group].jobs - (int(running[group]) if group < len(running) else 0), 0)
        for group in groups
        if accounts.groups[group].jobs >= 0
    ]
    return min(left, default=NO_LIMIT)


def _reserved(cluster: ClusterConfig, request: JobRequest, partition: Partition | None, now: int) -> int:
    if partition is None:
        return ABSENT
    taken: set[str] = set()
    for reservation in cluster.reservations:
        due = reservation.start < now + request.limit and reservation.end > now
        if due and request.user not in reservation.users and request.account not in reservation.accounts:
            taken |= set(reservation.nodes)
    return len(taken.intersection(partition.nodes))
