"""``/api/v1/allocation``: what the links occupy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Reader
from mirage.api.documents.allocation import AllocationDocument, allocation_document
from mirage.api.documents.visible import Visible

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def allocation_routes(service: ApiService) -> APIRouter:
    """The address about allocations."""
    routes = APIRouter(tags=["allocation"])

    @routes.get("/allocation", operation_id="show_allocation")
    def show_allocation(caller: Reader) -> AllocationDocument:
        """The nodes on which one's own links run or ran lately; administrators see everybody's."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin)
        return allocation_document(seen.records, status)

    return routes
