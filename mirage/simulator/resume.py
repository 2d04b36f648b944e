"""A cluster resumed from what its queue shows, for playing what may come: jobs' ends and arrivals are given.

What a queue does not show is filled in: which nodes running jobs hold (any that fit), and what raises or lowers
a priority beyond what the configuration says (taken as constant). Fair share is part of that constant: usage is
not seen, and changes slowly. Jobs that are still to come get what waiting jobs of their users show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirage.domain.job import ABSENT
from mirage.domain.jobtable import Names, job_table
from mirage.simulator import controller_state
from mirage.simulator.accounts import Accounts
from mirage.simulator.arrivals import encode_trace
from mirage.simulator.cluster import FairShare
from mirage.simulator.kernel import operations, priorities
from mirage.simulator.kernel.layout import (
    HIGHEST_IN_TURN,
    IDLE_ROW,
    NEVER,
    NODE_DOWN,
    UP,
    UP_ROW,
    Candidate,
    ControllerState,
    Fixed,
)
from mirage.simulator.model import ClusterTables
from mirage.simulator.registry import Registry

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import JobColumns, Snapshot
    from mirage.simulator.cluster import ClusterConfig

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shares:
    """Part of the priority that differs by user, and one value for all other users."""

    users: Int64
    """Numbers, ascending."""
    given: Floats
    """Priority of each of them."""
    others: float
    """Priority of all others."""

    @classmethod
    def none(cls) -> Shares:
        """The same priority, 0, for all users."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), 0.0)

    @classmethod
    def seen(cls, users: Int64, priority: Floats) -> Shares:
        """The mean of each user's jobs, and for others that of all; ``nan`` in ``priority`` says nothing."""
        known = ~np.isnan(priority)
        if not known.any():
            return cls.none()
        numbers, place = np.unique(users[known], return_inverse=True)
        return cls(
            numbers, np.bincount(place, priority[known]) / np.bincount(place), float(priority[known].mean())
        )

    @classmethod
    def known(cls, user: int, priority: float) -> Shares:
        """The share of one user; the same as ``none`` where ``priority`` is ``nan``."""
        return cls.seen(np.array([user], dtype=np.int64), np.array([priority]))

    def beside(self, better: Shares) -> Shares:
        """The same, but with the values of ``better`` for its users. Others as here, unless this has no users."""
        kept = ~np.isin(self.users, better.users)
        users = np.append(self.users[kept], better.users)
        given, order = np.append(self.given[kept], better.given), np.argsort(users)
        return Shares(users[order], given[order], self.others if len(self.users) else better.others)

    def of(self, users: ArrayLike) -> Floats:
        """Priority by user of jobs of these users; shape of ``users``."""
        asked = np.asarray(users)
        if not len(self.users):
            return np.full(asked.shape, self.others)
        place = np.minimum(np.searchsorted(self.users, asked), len(self.users) - 1)
        found: Floats = np.where(self.users[place] == asked, self.given[place], self.others)
        return found


Table = NDArray[np.void]

_ROOM = 64
"""Slots beyond those that the jobs of a future need."""


@dataclass(frozen=True, slots=True)
class Coming:
    """Jobs that may arrive: rows for the kernel. ``rows`` are of the table they were made from."""

    jobs: Table
    needs: Int64
    rows: Int64
    groups: int
    """Limit groups that ``needs`` may refer to."""

    def __len__(self) -> int:
        return len(self.jobs)


class Resumption:
    """Resumes one cluster repeatedly; what its configuration says is worked out once."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._fair_share = cluster.priority.fair_share
        weights = replace(cluster.priority, fair_share=0, fair_share_algorithm=FairShare.NONE)
        self._model = ClusterTables(replace(cluster, priority=weights))
        self._accounts = Accounts.of(self._model.cluster, self._model.resources)
        self._users: dict[str, int] = {}

    def coming(self, table: JobTable) -> Coming:
        """The jobs of a table as arrivals; those that the cluster would reject are left out."""
        found = encode_trace(self._model, self._accounts, replace(table, user=self._known(table.user)))
        rows = found.jobs["row"].copy()
        found.jobs["row"] = found.jobs["id"] = ABSENT
        return Coming(found.jobs, found.needs, rows, len(self._accounts.groups))

    @property
    def shares(self) -> bool:
        """Whether fair share counts here."""
        return self._fair_share > 0

    def resume(self, snapshot: Snapshot, request: JobRequest, fair_share: float = float("nan")) -> Resumed:
        """The cluster as ``snapshot`` shows it, with ``request`` to be submitted.

        ``fair_share``: the factor of the request's owner; where it is not known the request gets what waiting
        jobs show. Raises ``SubmissionRejected`` where the cluster would reject the request.
        """
        registry = Registry(self._accounts, self._users)
        candidate = registry.encode(self._model, request)
        candidate.job["runtime"] = NEVER
        shown, beyond = self._shown(snapshot)
        shares = Shares.none()
        if self.shares:
            own = Shares.known(int(candidate.job["user"][0]), self._fair_share * fair_share)
            shares = Shares.seen(shown.jobs["user"], beyond).beside(own)
        candidate.job["static"] += shares.of(candidate.job["user"])
        fixed = self._fixed(shown)
        world = controller_state.new_world(self._model, self._accounts, fixed, snapshot.time)
        world = controller_state.with_room(world, len(shown) + _ROOM)
        self._take_down(world, snapshot)
        world.sim["next_id"] = shown.jobs["id"].max(initial=0) + 1
        waiting = shown.jobs["static"][(shown.jobs["start"] == NEVER) & (shown.jobs["held"] == 0)]
        world.sim["lowest"] = min(HIGHEST_IN_TURN, int(waiting.min(initial=HIGHEST_IN_TURN)))
        scratch = controller_state.new_scratch(self._model, world, 0, len(self._users) + 1, len(world.jobs))
        slots = np.full(len(shown), ABSENT, dtype=np.int64)
        operations.resume(fixed, world, scratch, shown.jobs, shown.needs, slots)
        world.sim["last_main"] = world.sim["last_backfill"] = snapshot.time
        priorities.refresh(fixed, world, scratch)
        return Resumed(self._model, self._accounts, fixed, world, candidate, slots, shown.rows, shares)

    def _known(self, users: Names) -> Names:
        """The same users by numbers that stay the same from call to call."""
        numbers = [self._users.setdefault(user, len(self._users)) for user in users.vocabulary]
        codes = np.array([*numbers, -1], dtype=np.int32)[users.codes]
        return Names(codes, tuple(self._users))

    def _shown(self, snapshot: Snapshot) -> tuple[Coming, Floats]:
        """The jobs of the snapshot as rows, running ones first; ``rows`` count running, then pending jobs.

        With each job's priority beyond the computed part; ``nan`` for those that do not show it.
        """
        columns = _joined(snapshot.running, snapshot.pending)
        order = np.argsort(columns.submit, kind="stable")
        table = job_table(
            len(columns),
            user=self._known(Names(columns.user.astype(np.int32), snapshot.users)),
            partition=Names(columns.partition.astype(np.int32), snapshot.partition_names),
            qos=Names(columns.qos.astype(np.int32), snapshot.qos_names),
            submit=columns.submit,
            limit=columns.limit,
            nodes=columns.nodes.astype(np.int32),
            **self._taken(snapshot, columns),
        )
        found = encode_trace(self._model, self._accounts, table)
        place = order[found.jobs["row"]]
        again = np.argsort(place, kind="stable")
        jobs, needs, rows = found.jobs[again], np.ascontiguousarray(found.needs[again]), place[again]
        beyond = self._fill(jobs, columns.take(rows), rows < len(snapshot.running), snapshot.time)
        return Coming(jobs, needs, rows, len(self._accounts.groups)), beyond

    def _taken(self, snapshot: Snapshot, columns: JobColumns) -> dict[str, Any]:
        """Resources of the jobs on nodes that may be shared: whole nodes where that is not known.

        Nothing beyond what nodes have as configured: the job would be rejected here, and its nodes count as idle.
        """
        labels, nodes = snapshot.labels, np.maximum(columns.nodes, 1)
        at = labels.rows_of(columns.job_id)

        def told(values: Int64, missing: Int64) -> Int64:
            if not len(values):
                return missing
            found: Int64 = np.where((at >= 0) & (values[at] != ABSENT), values[at], missing)
            return found

        where = self._partitions(snapshot)[columns.partition]
        cpus = nodes * np.maximum(self._largest("cpu")[where], 1)
        nothing = np.zeros(len(columns), dtype=np.int64)
        memory_mb = nothing
        if "mem" in self._model.resources.names:
            memory_mb = np.minimum(told(labels.memory_mb, nothing), nodes * self._largest("mem")[where])
        kinds = [self._kind(text.partition(",")[0]) for text in labels.gres.vocabulary]
        names = tuple(dict.fromkeys(filter(None, kinds)))
        number = np.array([names.index(kind) if kind else -1 for kind in (*kinds, "")], dtype=np.int64)
        which = number[told(labels.gres.codes.astype(np.int64), nothing - 1)]
        each = told(labels.gres_per_node, nothing)
        gres = np.zeros((len(columns), len(names)), dtype=np.int32)
        for column, name in enumerate(names):
            most = np.minimum(each, self._largest(name)[where])
            gres[:, column] = np.where(which == column, nodes * most, 0)
        return {
            "cpus": np.minimum(told(labels.cpus, cpus), cpus).astype(np.int32),
            "memory_mb": memory_mb,
            "gres": gres,
            "gres_names": names,
        }

    def _partitions(self, snapshot: Snapshot) -> Int64:
        """The numbers here of the snapshot's partitions; an unknown partition becomes the default partition."""
        known = self._model.partition_index
        names = [known.get(name, self._model.default_partition) for name in snapshot.partition_names]
        return np.array(names or [self._model.default_partition], dtype=np.int64)

    def _largest(self, resource: str) -> Int64:
        """The most of a resource that a node of each partition has."""
        column = self._model.resources.names.index(resource)
        most = [self._model.capacity[members, column].max(initial=0) for members in self._model.members]
        return np.array(most, dtype=np.int64)

    def _kind(self, name: str) -> str:
        """The generic resource as the configuration knows it; empty: it does not."""
        return next((each for each in (name, name.partition(":")[0]) if each in self._model.resources.names), "")

    def _fill(self, jobs: Table, shown: JobColumns, runs: NDArray[np.bool_], now: int) -> Floats:
        """Fill in values that a request lacks: ids, starts, ages; returns priority beyond the computed part."""
        jobs["row"], jobs["id"] = ABSENT, shown.job_id
        jobs["start"] = np.where(runs, shown.start, NEVER)
        held = ~runs & (shown.eligible == NEVER)
        jobs["held"] = held
        jobs["begin"] = np.where(~runs & ~held & (shown.eligible > now), shown.eligible, 0)
        ready = ~runs & (shown.eligible <= now)
        jobs["eligible"] = np.where(ready, shown.eligible, NEVER)
        jobs["accrue"] = jobs["eligible"]
        beyond = self._beyond(jobs, shown.priority, now)
        jobs["static"] += np.where(ready, beyond, 0.0)
        return np.where(ready, beyond, np.nan)

    def _beyond(self, jobs: Table, priority: Int64, now: int) -> Floats:
        """Observed priority less the computed one; 0 where rounding and the time of computing explain it."""
        weights = self._model.cluster.priority
        if weights.max_age <= 0:
            whole: Floats = priority - jobs["static"]
            return whole
        age = np.minimum(1.0, np.maximum(0, now - jobs["accrue"]) / weights.max_age)
        beyond = priority - (jobs["static"] + weights.age * age)
        slack = 1.0 + weights.age * weights.calc_period / weights.max_age
        explained: NDArray[np.bool_] = np.abs(beyond) <= slack
        kept: Floats = np.where(explained, 0.0, beyond)
        return kept

    def _fixed(self, shown: Coming) -> Fixed:
        model = self._model
        return Fixed(
            config=model.config_table(len(self._users) + 1, 0, 0),
            arrivals=shown.jobs[:0],
            arrival_needs=shown.needs[:0],
            capacity=model.capacity,
            partitions=model.partition_table(),
            reservations=model.reservation_table(model.cluster.reservations, model.first_reservation_mask),
            timeline=model.timeline(),
            masks=model.masks,
            feature_mask=np.arange(len(model.features), dtype=np.int64) + len(model.cluster.partitions),
        )

    def _take_down(self, world: ControllerState, snapshot: Snapshot) -> None:
        """Take as many nodes of each partition down as the snapshot counts: the last ones, for want of names."""
        state = len(self._model.resources) + 1
        counted = {partition.name: partition.down for partition in snapshot.partitions}
        away = world.free[:, state] != UP
        for partition, members in zip(self._model.cluster.partitions, self._model.members, strict=True):
            missing = counted.get(partition.name, 0) - int((away & members).sum())
            away[np.flatnonzero(members & ~away)[::-1][: max(missing, 0)]] = True
        world.free[away, state] = NODE_DOWN
        up = self._model.words(~away)
        world.bits[UP_ROW], world.bits[IDLE_ROW] = up, up
        world.sim["idle"] = int((~away).sum())


@dataclass(frozen=True, slots=True)
class Resumed:
    """A cluster at the time of a snapshot."""

    model: ClusterTables
    accounts: Accounts
    fixed: Fixed
    world: ControllerState
    candidate: Candidate
    slots: Int64
    rows: Int64
    """Which of the snapshot's jobs, running ones first, are there; the cluster would reject the others."""
    shares: Shares

    def shared(self, coming: Coming) -> Coming:
        """The same arrivals, each with the fair share of its user."""
        jobs = coming.jobs.copy()
        jobs["static"] += self.shares.of(jobs["user"])
        return replace(coming, jobs=jobs)

    @property
    def lost(self) -> int:
        """Running jobs for which this cluster has no nodes."""
        return int((self.slots < 0).sum())


class Futures:
    """Plays futures of one resumed cluster, one after the other, in the same memory.

    With at most ``most_arrivals`` jobs each, all made before this.
    """

    def __init__(self, resumed: Resumed, most_arrivals: int) -> None:
        world, new = resumed.world, resumed.accounts.group_rows(len(resumed.world.groups))
        world = world._replace(groups=np.concatenate([world.groups, new]), waits=world.waits[:0])
        self._resumed = replace(resumed, world=world)
        size = len(world.jobs) + most_arrivals + _ROOM
        roomy = controller_state.with_room(controller_state.copied(world), size)
        self._run, self._work = controller_state.copied(roomy), roomy
        users = int(resumed.fixed.config["users"][0])
        self._scratch = controller_state.new_scratch(resumed.model, roomy, 0, users, len(roomy.jobs))
        self._record = controller_state.no_record()

    def starts(self, runtimes: Int64, cancels: Int64, coming: Coming, times: Int64, until: int) -> Int64:
        """When the request would start if submitted at each of ``times`` (ascending, from now on), in one future.

        ``runtimes``, ``cancels``: by row of ``Resumed.rows``, seconds in all and the time at which a job still
        waiting is cancelled (``NEVER``: not). ``coming``: arrivals in order of submission. ``NEVER`` where the
        request has not started at ``until``.
        """
        there = self._resumed
        if coming.groups > len(there.world.groups):
            raise ValueError("arrivals made after the futures they belong to")
        starts = np.full(len(times), NEVER, dtype=np.int64)
        fixed = there.fixed._replace(arrivals=coming.jobs, arrival_needs=coming.needs)
        done = operations.future_starts(
            fixed,
            there.world,
            self._run,
            self._work,
            self._scratch,
            self._record,
            there.candidate,
            there.slots,
            runtimes,
            cancels,
            times,
            until,
            starts,
        )
        if done < len(times):
            raise MemoryError(f"{len(coming)} arrivals: more than the future was made for")
        return starts


def _joined(first: JobColumns, second: JobColumns) -> JobColumns:
    pairs = ((getattr(first, name), getattr(second, name)) for name in type(first).__dataclass_fields__)
    return type(first)(*(np.concatenate(pair) for pair in pairs))
