"""``/api/v1/me``: who the API takes its caller for."""

from __future__ import annotations

from fastapi import APIRouter

from mirage.api.access.dependencies import Reader
from mirage.api.documents.me import MeDocument


def me_routes() -> APIRouter:
    """The address about the caller."""
    routes = APIRouter(tags=["about"])

    @routes.get("/me", operation_id="show_me")
    async def show_me(caller: Reader) -> MeDocument:
        """One's own name, and what one may do here."""
        return MeDocument(name=caller.name, scope=caller.scope, how=caller.how)

    return routes
