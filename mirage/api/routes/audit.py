"""``/api/v1/audit``: the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response

from mirage.api.access.dependencies import Admin
from mirage.api.conventions.pages import Cursor, Limit, next_link, read_number, spell_cursor
from mirage.api.conventions.threads import QueryRoute
from mirage.api.documents.audit import AuditDocument, AuditPage, audit_document
from mirage.domain.chain import ChainId
from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def audit_routes(service: ApiService) -> APIRouter:
    """Return the route of the audit log."""
    routes = APIRouter(route_class=QueryRoute, tags=["audit"])

    @routes.get("/audit", operation_id="list_audit")
    def list_audit(
        caller: Admin,
        request: Request,
        response: Response,
        chain: Annotated[str, Query(max_length=100, description="Chain ID; empty: all entries.")] = "",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> AuditPage:
        """List all changes with their author, and attempts to access others' chains, newest first."""
        del caller
        if service.audit is None:
            raise StoreUnavailable("this daemon has no audit log")
        before = None if cursor is None else read_number(cursor)
        lines = service.audit.read(ChainId(chain) if chain else None, before, limit + 1)
        further = spell_cursor(lines[limit - 1].cursor) if len(lines) > limit else None
        if further:
            response.headers["Link"] = next_link(request, further)
        shown: list[AuditDocument] = [audit_document(line.entry) for line in lines[:limit]]
        return AuditPage(entries=shown, next=further)

    return routes
