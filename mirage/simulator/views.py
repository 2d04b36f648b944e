"""Views of a simulation: columns of the queue, jobs, nodes, a user's grants; and the check of its tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import NO_LIMIT, Standing
from mirage.domain.errors import UnknownJob
from mirage.domain.job import ABSENT, Job, JobId, JobRequest, JobState
from mirage.domain.jobtable import JobLabels, Names, unknown_gres
from mirage.domain.snapshot import JobColumns, PartitionState
from mirage.simulator.cluster import FairShare
from mirage.simulator.kernel.layout import (
    FIRST_LIMIT,
    G_JOBS,
    IDLE_ROW,
    LIMIT_CODES,
    MUST_ROW,
    NEVER,
    NODE_DOWN,
    NODE_NOT_AVAIL,
    NONE,
    PLACE_ROW,
    PRIORITY,
    REASONS,
    RESOURCES,
    UP,
    UP_ROW,
)
from mirage.slurm import hostlist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.cluster import ClusterConfig, Partition
    from mirage.simulator.kernel.layout import ControllerState, Fixed
    from mirage.simulator.model import ClusterTables
    from mirage.simulator.registry import Registry

_NOT_KNOWN = float("nan")


def standing_of(
    model: ClusterTables, accounts: Accounts, world: ControllerState, request: JobRequest, now: int
) -> Standing:
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
    model: ClusterTables,
    accounts: Accounts,
    world: ControllerState,
    request: JobRequest,
    row: int,
    partition: Partition | None,
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


Table = NDArray[np.void]


def _taken(table: Table, rows: NDArray[np.int64]) -> Table:
    """The chosen rows, copied as rows of integers: numpy takes records field by field, ten times slower."""
    return table.view(np.int64).reshape(len(table), -1)[rows].view(table.dtype)[:, 0]


def _columns(rows: Table, start: NDArray[np.int64], registry: Registry) -> JobColumns:
    return JobColumns(
        job_id=rows["id"],
        user=rows["user"],
        partition=rows["partition"],
        qos=rows["qos"],
        nodes=rows["nodes"],
        limit=rows["limit"],
        submit=rows["submit"],
        eligible=rows["eligible"],
        start=start,
        priority=rows["priority"],
        series=registry.series(rows["user"], rows["name"]),
    )


def pending_columns(world: ControllerState, registry: Registry) -> JobColumns:
    """Pending jobs in order of priority; no planned starts (see ``Simulation.planned_starts``)."""
    rows = _taken(world.jobs, world.pending[: int(world.sim["pending"][0])])
    return _columns(rows, np.full(len(rows), ABSENT, dtype=np.int64), registry)


def running_columns(world: ControllerState, registry: Registry) -> JobColumns:
    """Running jobs in the order in which their limits end."""
    rows = _taken(world.jobs, world.running[: int(world.sim["running"][0])])
    return _columns(rows, rows["start"], registry)


def job_labels(model: ClusterTables, world: ControllerState, registry: Registry) -> JobLabels:
    """Names and accounts of the pending and the running jobs, and what they take of nodes that are shared."""
    ends = int(world.sim["pending"][0]), int(world.sim["running"][0])
    slots = np.concatenate([world.pending[: ends[0]], world.running[: ends[1]]])
    rows, needs = _taken(world.jobs, slots), world.needs[slots]
    accounts = tuple(row.account for row in registry.accounts.rows)
    names = (*registry.trace_names, *registry.names)
    texts = _named(rows["name"], names), _named(rows["association"], accounts)
    has_memory = "mem" in model.resources.names
    alone = rows["exclusive"] == 1  # Slurm shows all CPUs of its nodes, and how many those have is not known here
    cpus, memory_mb = (
        np.where(alone | (not known), ABSENT, needs[:, column] * rows["nodes"])
        for column, known in ((0, True), (1 if has_memory else 0, has_memory))
    )
    return JobLabels(rows["id"], *texts, *unknown_gres(len(rows)), cpus, memory_mb)


def _named(numbers: NDArray[np.int64], vocabulary: tuple[str, ...]) -> Names:
    return Names(np.where(numbers < len(vocabulary), numbers, -1).astype(np.int32), vocabulary)


def own_job(
    model: ClusterTables, world: ControllerState, requests: Sequence[JobRequest], accounts: Accounts, job_id: JobId
) -> Job:
    """A job submitted from outside as a domain value. Raises ``UnknownJob``."""
    own = world.own[: int(world.sim["own"][0])]
    found = np.flatnonzero(own["id"] == job_id)
    if not len(found):
        raise UnknownJob(f"job {job_id}: not submitted here")
    row, request = own[found[0]], requests[int(found[0])]
    state, start, end = JobState(int(row["status"])), _known(row["start"]), _known(row["end"])
    active = world.jobs[int(row["slot"])]
    if state == JobState.RUNNING:
        end = int(active["limit_end"])
    waits = state == JobState.PENDING
    return Job(
        job_id,
        request.name,
        request.user,
        request.partition,
        request.nodes,
        request.limit if state.finished else int(active["limit"]),
        state,
        int(row["submit"]),
        start,
        end,
        int(row["exit_code"]),
        _reason(model, world, active, accounts) if waits else "",
        request.tag,
        held=waits and bool(active["held"]),
        nice=int(active["nice"]) if waits else 0,
        node_list=request.node_list if waits else _place(model, world, int(found[0])),
    )


def _place(model: ClusterTables, world: ControllerState, own: int) -> str:
    """The nodes that the job in the own row runs or ran on, as a host list."""
    return "" if world.own["start"][own] == NEVER else _host_list(model, world.bits[PLACE_ROW + 2 * own])


def _host_list(model: ClusterTables, words: NDArray[np.uint64]) -> str:
    members = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return hostlist.fold([model.node_names[node] for node in members])


def _known(instant: Any) -> int:
    return ABSENT if instant == NEVER else int(instant)


def _reason(model: ClusterTables, world: ControllerState, job: Any, accounts: Accounts) -> str:
    """Slurm's word for what a pending job waits for; one that was not tried waits behind others (``Priority``)."""
    code = int(job["reason"])
    if job["listed"] and code in (NONE, PRIORITY, RESOURCES, NODE_NOT_AVAIL):
        away = world.bits[MUST_ROW + 2 * int(job["own"])] & ~world.bits[UP_ROW]
        if away.any():
            return f"ReqNodeNotAvail, UnavailableNodes:{_host_list(model, away)}"
    if code >= FIRST_LIMIT:
        group, part = divmod(code - FIRST_LIMIT, LIMIT_CODES)
        return accounts.limit_reason(group, part - 1)
    return "Priority" if REASONS[code] == "None" else REASONS[code]


def partition_states(model: ClusterTables, world: ControllerState) -> tuple[PartitionState, ...]:
    """Nodes of each partition by state."""
    resources = len(model.resources)
    busy, away = world.free[:, resources] > 0, world.free[:, resources + 1] != UP
    return tuple(
        PartitionState(
            p.name,
            int(mask.sum()),
            int((mask & ~busy & ~away).sum()),
            int((mask & busy).sum()),
            int((mask & away & ~busy).sum()),
        )
        for p, mask in zip(model.cluster.partitions, model.members, strict=True)
    )


def allocation(model: ClusterTables, world: ControllerState, slot: int) -> tuple[str, ...]:
    """Names of the nodes held by the job in ``slot``, in node order; empty for slot -1."""
    if slot < 0 or world.jobs["status"][slot] != JobState.RUNNING:
        return ()
    return tuple(model.node_names[n] for n in sorted(_nodes_of(world, slot)))


def _nodes_of(world: ControllerState, slot: int) -> list[int]:
    found, a = [], int(world.jobs["first_alloc"][slot])
    while a >= 0:
        found.append(int(world.allocs["node"][a]))
        a = int(world.allocs["next_of_job"][a])
    return found


def recent_waits(world: ControllerState, count: int, since: int) -> Table:
    """The last ``count`` starts since ``since``, oldest first."""
    started, size = int(world.sim["started"][0]), len(world.waits)
    kept = min(count, started, size)
    if started <= size:
        recent = world.waits[started - kept : started]
    else:
        recent = _taken(world.waits, np.arange(started - kept, started) % size)
    return recent[recent["start"] >= since] if since else recent


def known_jobs(trace: JobTable, results: Table, since: int, now: int) -> JobTable:
    """The rows of the trace submitted from ``since`` to ``now``, as known at ``now``."""
    first, last = np.searchsorted(trace.submit, since), np.searchsorted(trace.submit, now, side="right")
    chosen = np.arange(int(first), min(int(last), len(results)))
    table, found = trace.take(chosen), results[chosen]
    start, end = (np.where(found[name] <= now, found[name], ABSENT) for name in ("start", "end"))
    state = np.where(start == ABSENT, JobState.PENDING, JobState.RUNNING)
    state = np.where(end == ABSENT, state, found["state"]).astype(np.int8)
    return replace(table, start=start, end=end, state=state)


def planned(before: ControllerState, after: ControllerState) -> dict[JobId, int]:
    """Planned starts of the jobs pending in ``before``, read from ``after``, a copy that planned them."""
    found = {}
    for slot in before.pending[: int(before.sim["pending"][0])]:
        job = after.jobs[slot]
        start = job["start"] if job["status"] == JobState.RUNNING else job["expected"]
        if start != NEVER:
            found[JobId(int(job["id"]))] = int(start)
    return found


def check(model: ClusterTables, fixed: Fixed, world: ControllerState) -> None:
    """Recompute what the tables say twice; raise ``AssertionError`` where they disagree."""
    sim, resources = world.sim[0], len(model.resources)
    status = world.jobs["status"][: sim["slots"]]
    pending, running = world.pending[: sim["pending"]], world.running[: sim["running"]]
    assert sorted(pending) == list(np.flatnonzero(status == JobState.PENDING)), "pending queue and job states"
    assert sorted(running) == list(np.flatnonzero(status == JobState.RUNNING)), "running list and job states"
    limit_ends = world.jobs["limit_end"][running]
    assert (np.diff(limit_ends) >= 0).all(), "running list is not in order of limits"
    used, count = _recount(model, world, running)
    assert (world.free[:, :resources] == model.capacity[:, :resources] - used).all(), "free resources"
    assert (world.free[:, :resources] >= 0).all(), "over-allocated"
    assert (world.free[:, resources] == count).all(), "jobs on nodes"
    state = world.free[:, resources + 1]
    assert (count[state == NODE_DOWN] == 0).all(), "a job runs on a node that is down"
    idle = model.words((count == 0) & (state == UP))
    assert (world.bits[IDLE_ROW] == idle).all(), "idle set"
    _check_places(model, world, running)
    _check_groups(fixed, world, running)


def _recount(
    model: ClusterTables, world: ControllerState, running: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Resources in use and jobs by node, from the jobs' own allocations."""
    resources = len(model.resources)
    used = np.zeros((len(model.node_names), resources), dtype=np.int64)
    count = np.zeros(len(model.node_names), dtype=np.int64)
    for slot in running:
        nodes = _nodes_of(world, slot)
        job = world.jobs[slot]
        assert len(nodes) == job["nodes"], f"job {job['id']} holds {len(nodes)} nodes, asked {job['nodes']}"
        for node in nodes:
            used[node] += model.capacity[node, :-1] if job["exclusive"] else world.needs[slot, :resources]
            count[node] += 1
    return used, count


def _check_places(model: ClusterTables, world: ControllerState, running: NDArray[np.int64]) -> None:
    """Jobs submitted from outside stand where their sets say, and on every node that they list."""
    for slot in running:
        own = int(world.jobs["own"][slot])
        if own < 0:
            continue
        mask = np.zeros(len(model.node_names), dtype=np.bool_)
        mask[_nodes_of(world, slot)] = True
        must, place = world.bits[MUST_ROW + 2 * own], world.bits[PLACE_ROW + 2 * own]
        number = world.jobs["id"][slot]
        assert (place == model.words(mask)).all(), f"nodes noted for job {number}"
        assert world.jobs["listed"][slot] == np.unpackbits(must.view(np.uint8)).sum(), (
            f"nodes listed by job {number}"
        )
        assert not (must & ~place).any(), f"job {number} runs without a node of its list"


def _check_groups(fixed: Fixed, world: ControllerState, running: NDArray[np.int64]) -> None:
    first = 2 * int(fixed.config["resources"][0]) + 1
    jobs = np.zeros(len(world.groups), dtype=np.int64)
    for slot in running:
        for group in world.needs[slot, first:]:
            if group >= 0:
                jobs[group] += 1
    assert (jobs == world.groups[:, G_JOBS]).all(), "jobs counted against limits"
