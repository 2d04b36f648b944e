"""``/api/v1/me``: the authenticated caller."""

from __future__ import annotations

from fastapi import APIRouter

from mirage.api.access.dependencies import Reader
from mirage.api.documents.me import MeDocument


def me_routes() -> APIRouter:
    """Return the route about the caller."""
    routes = APIRouter(tags=["about"])

    @routes.get("/me", operation_id="show_me")
    async def show_me(caller: Reader) -> MeDocument:
        """Return name, scope and authentication of the caller."""
        return MeDocument(name=caller.name, scope=caller.scope, how=caller.how)

    return routes
