"""``/api/v1/agent``: agents fetch requests for their user and respond to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response

from mirage.api.access.dependencies import Local, read_body
from mirage.api.conventions.documents import Word
from mirage.api.conventions.problems import BadDocument
from mirage.api.conventions.threads import run_in_thread
from mirage.backends.agent_requests import LONGEST_ANSWER, AgentResponse, BadOrder
from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.api.port import ApiService
    from mirage.backends.agent_queue import AgentQueue
    from mirage.backends.agent_requests import AgentRequest

LONGEST_WAIT = 30.0
_LOOK = 0.2


def agent_routes(service: ApiService) -> APIRouter:
    """Return the routes for agents."""
    routes = APIRouter(prefix="/agent", tags=["agent"])

    @routes.get("/order", response_model=None)
    async def next_order(
        caller: Local, request: Request, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = LONGEST_WAIT
    ) -> Response:
        """Return the next request for the caller's agent; waits up to ``wait`` seconds for one, then 204."""
        desk = _desk(service)
        order = await _fetch(desk, caller.name, request, wait, service.ending)
        if order is None:
            return Response(status_code=204)
        return Response(order.to_text(), media_type="application/json")

    @routes.post("/orders/{order_id}/answer")
    async def answer_order(caller: Local, request: Request, order_id: Word) -> dict[str, bool]:
        """Accept an agent's response; ``awaited``: whether the daemon still waited for it."""
        desk = _desk(service)
        files = desk.find_unanswered(caller.name, order_id)
        if files is None:  # the body is not read: a user could send such responses without end
            return {"awaited": False}
        body = await read_body(request, LONGEST_ANSWER)
        try:
            answer = await run_in_thread(caller.name, AgentResponse.from_text, body, files)
        except BadOrder as error:
            raise BadDocument(str(error)) from None
        return {"awaited": desk.answer(caller.name, order_id, answer)}

    return routes


def _desk(service: ApiService) -> AgentQueue:
    if service.desk is None:
        raise NotPermitted("this daemon sends no requests to agents: its acting.mode is not agent")
    return service.desk


async def _fetch(
    desk: AgentQueue, user: str, request: Request, wait: float, ending: Callable[[], bool]
) -> AgentRequest | None:
    """Poll instead of block, so that no request is taken for an agent that has left or while the server ends."""
    desk.attach(user)
    end = asyncio.get_running_loop().time() + wait
    while not (ending() or await request.is_disconnected()):
        order = desk.next_order(user, 0)
        if order is not None or asyncio.get_running_loop().time() >= end:
            return order
        await asyncio.sleep(_LOOK)
    return None
