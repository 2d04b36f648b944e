"""``/api/v1/allocation``: nodes of the links, and the tasks within them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from mirage.api.access.dependencies import Reader
from mirage.api.access.rates import TooOften
from mirage.api.conventions.keeping import KeptBodies
from mirage.api.conventions.parameters import ChainName
from mirage.api.documents.allocation import AllocationDocument, joined, places_document
from mirage.api.documents.tasks import TasksDocument, tasks_document
from mirage.api.documents.visible import Visible
from mirage.api.routes.ownership import own_chain
from mirage.api.taskstate.watch import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.domain.chain import ChainId, ChainRecord

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
