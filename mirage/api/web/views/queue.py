"""``/queue``: the jobs of all users in the last snapshot."""

from __future__ import annotations

from fastapi import Request, Response

from mirage.api.documents.cluster import ClusterDocument
from mirage.api.documents.me import MeDocument
from mirage.api.documents.queue import QueueDocument
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.rendering import render

FILTERS = ("partition", "user", "state")
STATES = ("pending", "running")
ROWS = 100


async def show_queue(request: Request) -> Response:
    """Show one page of the queue."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    cluster = await ask.get("/cluster", ClusterDocument)
    given = {name: request.query_params.get(name, "").strip()[:64] for name in FILTERS}
    cursor = request.query_params.get("cursor")
    wanted = given | {"state": given["state"] if given["state"] in STATES else ""}
    found = await ask.get("/queue", QueueDocument, **wanted, limit=ROWS, cursor=cursor)
    return await render(
        request, "queue.html.j2", me, cluster=cluster, given=wanted, found=found, states=STATES, first=not cursor
    )
