"""``/api/v1/allocation``: nodes of the links as lanes with bars, and the tasks within the links."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from mirage.api.access.dependencies import Reader
from mirage.api.access.rates import TooOften
from mirage.api.access.visibility import Visible, own_chain
from mirage.api.conventions.caching import KeptBodies
from mirage.api.conventions.documents import ChainName, Described, instant
from mirage.api.routes.tasks import TasksDocument, tasks_document
from mirage.api.taskwatch import Shown
from mirage.domain.errors import BadSpelling
from mirage.domain.link import NO_JOB
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.control.status import Status
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.link import Link


class PieceDocument(Described):
    """A bar: one link on one node, from start to end."""

    label: str
    """Text on the bar: chain name and link number."""
    chain: str
    """Chain ID."""
    link: int
    """Number of the link in its chain, from 1."""
    job_id: int | None
    """Slurm's job ID; ``null``: unknown."""
    state: str
    """running, ended or lost."""
    start: str | None
    """Start time."""
    end: str | None
    """End time; of a running link: end of its time limit."""


class LaneDocument(Described):
    """A node and its bars."""

    name: str
    """Node name."""
    kind: str
    """Always ``node``."""
    pieces: list[PieceDocument]
    """Oldest first."""


class AllocationDocument(Described):
    """The nodes of links that Slurm still reports: running and recently ended ones."""

    time: str | None
    """Time of the last cycle."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    lanes: list[LaneDocument]
    """Nodes, sorted by name."""
    tasks: list[TasksDocument]
    """Tasks of chains with a running link and a task state directory."""


def places_document(records: Sequence[ChainRecord], status: Status) -> bytes:
    """Return the nodes of the links of ``records`` by the last snapshot, as JSON without tasks."""
    lanes: dict[str, list[PieceDocument]] = defaultdict(list)
    for record in records:
        for link in record.links:
            for node in _nodes(record, link, status):
                lanes[node].append(_piece(record, link))
    document = AllocationDocument(
        time=instant(status.time),
        stale_since=instant(status.stale_since),
        lanes=[LaneDocument(name=node, kind="node", pieces=lanes[node]) for node in sorted(lanes)],
        tasks=[],
    )
    return document.model_dump_json(exclude={"tasks"}).encode()


def joined(places: bytes, tasks: Iterable[bytes]) -> bytes:
    """Join a ``places_document`` and some ``TasksDocument`` into an ``AllocationDocument``."""
    return b'%s,"tasks":[%s]}' % (places.removesuffix(b"}"), b",".join(tasks))


def _nodes(record: ChainRecord, link: Link, status: Status) -> list[str]:
    job = status.snapshot.link(link.tag, record.chain.owner)
    if job is None or not link.started or not job.node_list:
        return []
    try:
        return expand(job.node_list)
    except BadSpelling:
        return [job.node_list]  # shown as Slurm wrote it


def _piece(record: ChainRecord, link: Link) -> PieceDocument:
    return PieceDocument(
        label=f"{record.chain.name} {link.index}",
        chain=record.chain.chain_id,
        link=link.index,
        job_id=link.job_id if link.job_id != NO_JOB else None,
        state=link.state,
        start=instant(link.start),
        end=instant(link.end),
    )


NOWHERE = "this chain has no task state directory; submit it with `mirage submit --tasks-state DIR`"
MOST_BYTES = 1 << 20
"""Bytes of tasks of all chains in one response: enough for three chains with the maximum number of tasks."""
LEFT_OUT = "too many tasks to show with those of other chains; open this chain to see them"


def allocation_routes(service: ApiService) -> APIRouter:
    """Return the routes about allocations."""
    routes = APIRouter(tags=["allocation"])
    kept = KeptBodies()

    @routes.get("/allocation", operation_id="show_allocation", response_model=AllocationDocument)
    async def show_allocation(caller: Reader, request: Request) -> Response:
        """List nodes and tasks of the caller's running and recent links; for administrators of all users."""
        status = service.status()
        owner = None if caller.is_admin else caller.name
        seen = Visible(status, caller.name, every=caller.is_admin)
        working = [each for each in seen.records if each.chain.tasks_state and each.head is not None]
        tasks = await _looked(working, service, caller, request)
        places = await kept.get(status, caller.name, owner, lambda: (places_document(seen.records, status), None))
        return _json(joined(places.body, _bounded(working, tasks, service)))

    @routes.get("/chains/{chain_id}/tasks", operation_id="show_tasks", response_model=TasksDocument)
    async def show_tasks(caller: Reader, request: Request, chain_id: ChainName) -> Response:
        """Return the state of the tasks in a chain's links, as last written by the agent."""
        record = own_chain(chain_id, caller, service)
        if not record.chain.tasks_state:
            return _json(_without(record, NOWHERE, service))
        (found,) = (await _looked([record], service, caller, request)).values()
        if isinstance(found, TooOften):
            raise found
        return _json(found.body)

    return routes


async def _looked(
    records: Sequence[ChainRecord], service: ApiService, caller: Caller, request: Request
) -> dict[ChainId, Shown | TooOften]:
    """Bytes read count against the caller's rate, like bytes sent."""
    found = await service.tasks.look(records, service.now())
    if read := sum(each.read for each in found.values() if isinstance(each, Shown)):
        service.gate.charge(caller, request, read)
    return found


def _bounded(
    records: Sequence[ChainRecord], found: Mapping[ChainId, Shown | TooOften], service: ApiService
) -> Iterator[bytes]:
    left = MOST_BYTES
    for record in records:
        one = found[record.chain.chain_id]
        if isinstance(one, TooOften):
            yield _without(record, str(one), service)
        elif len(one.body) > left:
            yield _without(record, LEFT_OUT, service)
        else:
            left -= len(one.body)
            yield one.body


def _without(record: ChainRecord, why: str, service: ApiService) -> bytes:
    return tasks_document(record, why, service.now()).model_dump_json().encode()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
