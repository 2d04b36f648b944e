"""``/api/v1/cluster`` and ``/api/v1/queue``: cluster and queue in the last snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query

from mirage.api.access.dependencies import Reader
from mirage.api.access.visibility import Visible
from mirage.api.conventions.documents import Described, instant
from mirage.api.conventions.threads import ThreadRoute
from mirage.api.routes.jobs import JobDocument, code_of, job_documents, labels_of
from mirage.api.routes.pages import Cursor, Limit, read_number, spell_cursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirage.api.port import ApiService
    from mirage.control.status import Status
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot


class QueueDocument(Described):
    """One page of the queue, sorted by job ID."""

    snapshot: str | None
    """Time of the snapshot; ``null``: none yet."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    own_only: bool
    """Whether jobs of other users are left out: Slurm's PrivateData setting hides them, or is unknown."""
    total: int
    """Number of matching jobs, on all pages."""
    jobs: list[JobDocument]
    """Jobs, sorted by job ID."""
    next: str | None
    """``cursor`` of the next page; ``null`` on the last page."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Filter of jobs; empty fields match all."""

    user: str = ""
    partition: str = ""
    state: str = ""
    """``pending`` or ``running``."""
    owner: str = ""
    """If set: only this user's jobs, in addition to the other filters."""


@dataclass(frozen=True, slots=True)
class QueuePageDocument:
    """A page of jobs, and the total number."""

    jobs: list[JobDocument]
    total: int
    last: int
    """Position of the last job; the next page begins after it."""
    more: bool


def queue_page(
    snapshot: Snapshot, sought: Sought, after: int, most: int, shown_of: Callable[[str], bool]
) -> QueuePageDocument:
    """Return up to ``most`` jobs after a position; job names only of users for whom ``shown_of`` is true.

    Other jobs are processed as columns only.
    """
    places, rows = [], []
    for columns, running in ((snapshot.pending, False), (snapshot.running, True)):
        found = np.flatnonzero(_matching(columns, sought, snapshot, running=running))
        places.append(columns.job_id[found] * 2 + running)
        rows.append(found)
    place, row = np.concatenate(places), np.concatenate(rows)
    (left,) = np.nonzero(place > after)
    if len(left) > most + 1:  # the first ones, without sorting the others
        left = left[np.argpartition(place[left], most)[: most + 1]]
    page = left[np.argsort(place[left])]
    shown = page[:most]
    jobs = _documents(place[shown], row[shown], snapshot, shown_of)
    return QueuePageDocument(jobs, len(place), int(place[shown[-1]]) if len(shown) else after, len(page) > most)


def _matching(columns: JobColumns, sought: Sought, snapshot: Snapshot, *, running: bool) -> NDArray[np.bool_]:
    state = "running" if running else "pending"
    mask = np.full(len(columns), sought.state in ("", state))
    for user in filter(None, (sought.user, sought.owner)):
        code = code_of(user, snapshot.users)
        mask &= columns.user == (code if code is not None else -2)
    if sought.partition:
        # A pending job may name several partitions as a comma-separated list.
        names = snapshot.partition_names
        codes = [code for code, name in enumerate(names) if sought.partition in name.split(",")]
        mask &= np.isin(columns.partition, codes)
    return mask


def _documents(
    places: NDArray[np.int64], rows: NDArray[np.int64], snapshot: Snapshot, shown_of: Callable[[str], bool]
) -> list[JobDocument]:
    found: dict[int, JobDocument] = {}
    for columns, running in ((snapshot.pending, False), (snapshot.running, True)):
        of_state = places % 2 == running
        mine = rows[of_state].tolist()
        labels = labels_of(columns, mine, snapshot, shown_of)
        documents = job_documents(columns, mine, snapshot, labels, running=running)
        found |= zip(np.flatnonzero(of_state).tolist(), documents, strict=True)
    return [found[at] for at in range(len(rows))]


class PartitionDocument(Described):
    """One partition: nodes and jobs by state."""

    name: str
    """Partition name."""
    nodes: int
    """Number of nodes."""
    idle: int
    """Idle nodes."""
    allocated: int
    """Nodes with at least one job."""
    down: int
    """Nodes that are down or drained, or draining without a job."""
    pending: int
    """Pending jobs."""
    running: int
    """Running jobs."""
    pending_nodes: int
    """Nodes requested by pending jobs."""


class LoopDocument(Described):
    """The last cycle of the decision loop."""

    cycle: int
    """Cycles completed since the daemon started."""
    time: str | None
    """Start of the last cycle."""
    duration: float | None
    """Duration of the last cycle, in real seconds."""
    sentence: str
    """Result of the last cycle; for users who are not administrators: for their chains only."""


class ClusterDocument(Described):
    """The cluster, and the daemon's view of it."""

    now: str | None
    """Current time of Slurm's clock."""
    snapshot: str | None
    """Time of the snapshot."""
    stale_since: str | None
    """Time of the last answer, which all fields below show; ``null``: the cluster answers now."""
    backend: str
    """Slurm backend: cli, rest, pyslurm, or simulated."""
    slurm_version: str | None
    """Slurm version; ``null``: unknown."""
    pending: int
    """Pending jobs."""
    running: int
    """Running jobs."""
    partitions: list[PartitionDocument]
    """Partitions; a node in several of them counts in each."""
    chains: dict[str, int]
    """Number of the caller's chains (administrators: of all) by status: active, paused, done, stopped."""
    states: dict[str, int]
    """Number of these chains by state: starting, up, down, paused, done, failed, cancelled."""
    loop: LoopDocument
    """The decision loop and its last cycle."""
    agent: bool | None
    """Whether the caller's agent runs; ``null``: this daemon does not use agents."""


def partition_documents(status: Status) -> list[PartitionDocument]:
    """Return the partitions of the snapshot."""
    snapshot = status.snapshot
    pending = _counted(snapshot.pending, snapshot.partition_names)
    running = _counted(snapshot.running, snapshot.partition_names)
    return [
        PartitionDocument(
            name=partition.name,
            nodes=partition.total,
            idle=partition.idle,
            allocated=partition.allocated,
            down=partition.down,
            pending=pending.get(partition.name, (0, 0))[0],
            running=running.get(partition.name, (0, 0))[0],
            pending_nodes=pending.get(partition.name, (0, 0))[1],
        )
        for partition in snapshot.partitions
    ]


def cluster_document(
    status: Status,
    now: Seconds,
    seen: Visible,
    loop: LoopDocument,
    about: tuple[str, str | None],
    agent: bool | None,
) -> ClusterDocument:
    """Return the cluster document; ``about``: backend and Slurm version, ``agent``: whether the caller has one."""
    return ClusterDocument(
        now=instant(now),
        snapshot=instant(status.snapshot.time) if status.cycles else None,
        stale_since=instant(status.stale_since),
        backend=about[0],
        slurm_version=about[1],
        pending=len(status.snapshot.pending),
        running=len(status.snapshot.running),
        partitions=partition_documents(status),
        chains=seen.by_status,
        states=seen.by_state,
        loop=loop,
        agent=agent,
    )


def _counted(jobs: JobColumns, names: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Jobs and requested nodes by partition; a job that names several partitions counts in each."""
    known = jobs.partition >= 0
    codes, nodes = jobs.partition[known], np.maximum(jobs.nodes[known], 0)
    counts = np.bincount(codes, minlength=len(names))
    asked = np.bincount(codes, weights=nodes, minlength=len(names))
    found: dict[str, tuple[int, int]] = {}
    for name, count, total in zip(names, counts.tolist(), asked.tolist(), strict=True):
        for each in name.split(","):
            before = found.get(each, (0, 0))
            found[each] = (before[0] + count, before[1] + int(total))
    return found


Text = Annotated[str, Query(max_length=64)]


def cluster_routes(service: ApiService) -> APIRouter:
    """Return the routes about the cluster."""
    routes = APIRouter(route_class=ThreadRoute, tags=["cluster"])

    @routes.get("/cluster", summary="Cluster state")
    def show_cluster(caller: Reader) -> ClusterDocument:
        """Return partitions, nodes and jobs by state, and the state of the decision loop."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin)
        loop = LoopDocument(
            cycle=status.cycles,
            time=instant(status.time),
            duration=service.cycle_seconds(),
            sentence=seen.sentence,
        )
        agent = None if service.desk is None else service.desk.attached(caller.name)
        return cluster_document(status, service.now(), seen, loop, service.about_cluster(), agent)

    @routes.get("/queue", summary="Queue")
    def show_queue(
        caller: Reader,
        partition: Text = "",
        user: Annotated[str, Query(max_length=64, description="User name; me: the caller.")] = "",
        state: Literal["", "pending", "running"] = "",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> QueueDocument:
        """List pending and running jobs, as in squeue, sorted by job ID.

        If Slurm's PrivateData setting hides jobs of other users, or is unknown, only administrators see those
        jobs. All users see them if the access policy has queue_jobs = "all".

        Job names and accounts are shown for own jobs, to administrators for all jobs. The access policy may show
        more. Each page shows the queue at the time of its request. Jobs that have left since are omitted.
        """
        status, after = service.status(), read_number(cursor) if cursor else 0
        every = service.gate.policy().shows_jobs_to(caller, hidden=service.hides_jobs())
        sought = Sought(caller.name if user == "me" else user, partition, state, "" if every else caller.name)
        shown_of = service.gate.policy().names_shown_to(caller)
        page = queue_page(status.snapshot, sought, after, limit, shown_of)
        return QueueDocument(
            snapshot=instant(status.snapshot.time) if status.cycles else None,
            stale_since=instant(status.stale_since),
            own_only=not every,
            total=page.total,
            jobs=page.jobs,
            next=spell_cursor(page.last) if page.more else None,
        )

    return routes
