"""Numbers of users, job names, arrays and associations; and requests turned into the kernel's rows.

The nodes that a job must have (``--nodelist``) are checked here as slurmctld checks them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain import jobtable
from mirage.domain.errors import BadSpelling, SubmissionRejected
from mirage.domain.job import DependencyKind
from mirage.simulator import encode
from mirage.simulator.kernel.layout import Candidate
from mirage.slurm import hostlist

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import JobRequest
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.encode import Fit, JobCeiling
    from mirage.simulator.model import ClusterTables

Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def nodes_listed(model: ClusterTables, request: JobRequest) -> Words:
    """The nodes that ``request`` lists, as a set; empty where it lists none.

    Raises ``SubmissionRejected`` in Slurm's words for nodes that do not exist, that the job may not use, or that
    are more than it asks for.
    """
    if not request.node_list:
        return np.zeros(model.word_count, dtype=np.uint64)
    mask = np.zeros(len(model.node_names), dtype=np.bool_)
    mask[_numbers(model, request.node_list)] = True
    if mask.any():
        _check(model, request, mask)
    return model.words(mask)


def _numbers(model: ClusterTables, text: str) -> list[int]:
    try:
        names = hostlist.expand(text)
        return [model.node_index[name] for name in names]
    except BadSpelling as fault:
        raise SubmissionRejected("ReqNodeNotAvail", f"Invalid node name specified: {fault}") from None
    except KeyError as unknown:
        raise SubmissionRejected(
            "ReqNodeNotAvail", f"Invalid node name specified: there is no node {unknown.args[0]}"
        ) from None


def _check(model: ClusterTables, request: JobRequest, mask: Mask) -> None:
    shape = encode.request_shape(model, request)
    needs = encode.fit(model, shape).per_node
    _refuse(
        model,
        mask & ~model.members[shape.partition],
        "ReqNodeNotAvail",
        f"Requested nodes not in this partition ({model.cluster.partitions[shape.partition].name})",
    )
    hosts = encode.hosts(model, shape, needs)
    _refuse(model, mask & ~hosts, "BadConstraints", "Requested node configuration is not available")
    for reservation in model.cluster.reservations:
        if reservation.name == request.reservation:
            outside = mask & ~np.isin(np.array(model.node_names), reservation.nodes)
            _refuse(model, outside, "BadConstraints", "Required nodes outside of the reservation")
    if mask.sum() > request.nodes:
        raise SubmissionRejected(
            "PartitionNodeLimit",
            f"Node count specification invalid: {mask.sum()} nodes listed, {request.nodes} asked",
        )


def _refuse(model: ClusterTables, wrong: Mask, reason: str, words: str) -> None:
    if wrong.any():
        names = [model.node_names[node] for node in np.flatnonzero(wrong)]
        raise SubmissionRejected(reason, f"{words}: {hostlist.fold(names)}")


Int64 = NDArray[np.int64]
Table = NDArray[np.void]


@dataclass(slots=True)
class Registry:
    """Numbers given to names; only ever grows."""

    accounts: Accounts
    users: dict[str, int] = field(default_factory=dict)
    trace_names: Mapping[str, int] = field(default_factory=dict)
    """The trace's job names: many, so shared by all copies."""
    names: dict[str, int] = field(default_factory=dict)
    """Names that appeared since."""
    arrays: int = 0
    _hashes: tuple[Int64, Int64] = field(default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.int64)))

    @classmethod
    def of_trace(cls, accounts: Accounts, jobs: JobTable | None) -> Registry:
        """The registry in which a trace's codes are the numbers."""
        if jobs is None:
            return cls(accounts)
        users = {name: i for i, name in enumerate(jobs.user.vocabulary)}
        return cls(accounts, users, {name: i for i, name in enumerate(jobs.name.vocabulary)})

    def copy(self) -> Registry:
        """Return a copy that registers users and names independently."""
        return replace(self, accounts=self.accounts.copy(), users=dict(self.users), names=dict(self.names))

    @property
    def users_in_tree(self) -> int:
        """User rows of the association tree."""
        return sum(1 for row in self.accounts.rows if row.user)

    def series(self, user: Int64, name: Int64) -> Int64:
        """The series of jobs, from the numbers of their users and names; -1: none."""
        names = len(self.trace_names) + len(self.names)
        if [len(known) - 1 for known in self._hashes] != [len(self.users), names]:
            # The number of "no name" is the last.
            self._hashes = (
                jobtable.hashed_users([*self.users, ""]),
                jobtable.hashed_names([*self.trace_names, *self.names, ""]),
            )
        users, texts = self._hashes
        return jobtable.series_of(users[user], texts[name])

    def new_array(self) -> int:
        """Return the next unused number of an array job."""
        self.arrays += 1
        return self.arrays - 1

    def encode(
        self, model: ClusterTables, request: JobRequest, array: int = -1, most_at_once: int = 0
    ) -> Candidate:
        """A request as the kernel takes it. Raises ``SubmissionRejected`` with Slurm's reason."""
        shape = encode.request_shape(model, request)
        found = encode.fit(model, shape)
        association = self.accounts.association(request.user, request.account)
        if association < 0:
            raise SubmissionRejected(
                "InvalidAccount", f"user {request.user}, account {request.account or '(default)'}"
            )
        names = (request.qos, model.cluster.partitions[shape.partition].qos)
        self._check(model, request, found, encode.job_ceiling(model, self.accounts, association, names))
        qualities = tuple(model.qos[name] for name in names if name in model.qos)
        groups = self.accounts.groups_of(association, request.user, request.account, qualities)
        if most_at_once > 0:
            groups.append(self.accounts.throttle(array, most_at_once))
        row = encode.blank_rows(1)
        row["partition"], row["nodes"], row["limit"] = shape.partition, shape.nodes, found.limit
        row["exclusive"], row["features"] = int(found.exclusive), found.features
        row["static"] = (
            found.static_priority
            + encode.quality_priority(model, request.qos)
            + encode.association_priority(model, self.accounts, association)
        )
        row["billing"], row["association"], row["array"] = found.billing, association, array
        row["tier"] = model.cluster.partitions[shape.partition].priority_tier
        self._fill_request(row, request)
        row["reservation"] = _reservation(model, request)
        must = nodes_listed(model, request)
        row["listed"] = np.unpackbits(must.view(np.uint8)).sum()
        return Candidate(row, encode.needs_row(found, groups), must)

    def _check(self, model: ClusterTables, request: JobRequest, found: Fit, ceiling: JobCeiling) -> None:
        if not encode.known_qos(model, request.qos):
            raise SubmissionRejected("InvalidQOS", f"no QOS {request.qos}")
        refusal = ceiling.refusal(found.limit, found.total)
        if refusal:
            raise SubmissionRejected(refusal, f"user {request.user}, a limit of {found.limit} s")

    def _name(self, name: str) -> int:
        if name in self.trace_names:
            return self.trace_names[name]
        return self.names.setdefault(name, len(self.trace_names) + len(self.names))

    def _fill_request(self, row: Table, request: JobRequest) -> None:
        row["user"] = self.users.setdefault(request.user, len(self.users))
        row["name"] = self._name(request.name)
        row["held"], row["begin"], row["nice"] = int(request.held), request.begin, request.nice
        row["requeue"] = int(request.requeue is not False)  # JobRequeue is 1 unless a site says otherwise
        row["singleton"] = int(any(d.kind == DependencyKind.SINGLETON for d in request.dependencies))


def _reservation(model: ClusterTables, request: JobRequest) -> int:
    """The number of the reservation asked for, -1 for none. Raises ``SubmissionRejected``."""
    if not request.reservation:
        return -1
    for i, reservation in enumerate(model.cluster.reservations):
        if reservation.name == request.reservation:
            if request.user in reservation.users or request.account in reservation.accounts:
                return i
            raise SubmissionRejected("ReservationAccess", f"{request.user} may not use {reservation.name}")
    raise SubmissionRejected("ReservationInvalid", f"no reservation {request.reservation}")
