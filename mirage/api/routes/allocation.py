"""``/api/v1/allocation``: what the links occupy, and the tasks within them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Reader
from mirage.api.documents.allocation import AllocationDocument, allocation_document
from mirage.api.documents.tasks import TasksDocument, tasks_document
from mirage.api.documents.visible import Visible
from mirage.api.routes.ownership import own_chain

if TYPE_CHECKING:
    from mirage.api.port import ApiService

NOWHERE = "this chain does not say where its tasks' state is: `mirage submit --tasks-state DIR`"


def allocation_routes(service: ApiService) -> APIRouter:
    """The address about allocations."""
    routes = APIRouter(tags=["allocation"])

    @routes.get("/allocation", operation_id="show_allocation")
    def show_allocation(caller: Reader) -> AllocationDocument:
        """The nodes and tasks of one's own links that run or ran lately; administrators see everybody's."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin)
        working = [each.chain for each in seen.records if each.chain.tasks_state and each.head is not None]
        return allocation_document(seen.records, status, service.tasks.look(working), service.now())

    @routes.get("/chains/{chain_id}/tasks", operation_id="show_tasks")
    def show_tasks(caller: Reader, chain_id: str) -> TasksDocument:
        """How the tasks within a chain's links stand, as the agent there last wrote."""
        record = own_chain(chain_id, caller, service)
        if not record.chain.tasks_state:
            return tasks_document(record, NOWHERE, service.now())
        return tasks_document(record, service.tasks.look([record.chain])[record.chain.chain_id], service.now())

    return routes
