"""Read request bodies and headers, and build answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.boundedhttp import LARGEST_DISCARDED
from mirage.domain.texts import client_network

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import TypeVar

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from mirage.allocation.inference.serving.admission import BudgetReservation

    T = TypeVar("T")

__all__ = ["ClientDisconnect", "Streamed", "key_of", "origin_of", "read_body", "unless_gone"]


_BODY_WITHIN = 30.0


class Streamed(StreamingResponse):
    """An answer that is sent in parts; ``close`` is called at its end, whether or not it was read."""

    def __init__(
        self, content: AsyncIterator[bytes], status: int, headers: Mapping[str, str], close: Callable[[], None]
    ) -> None:
        super().__init__(content, status, headers)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: send the answer part by part."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def key_of(headers: Mapping[str, str]) -> str | None:
    """The API key, as OpenAI's clients send it or as ``X-API-Key``."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key")


def origin_of(request: Request) -> str:
    """The unit of fair pacing for a request without a key: its address."""
    return client_network(request.client.host) if request.client else ""


async def read_body(request: Request, most: int, memory: BudgetReservation) -> bytes:
    """Read the body. Raises ``RequestRefused`` where it is too large, has no room, or is late."""
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            return await _whole(request, most, memory)
    except TimeoutError:
        raise RequestRefused(408, f"the request was incomplete after {_BODY_WITHIN:g} s") from None


async def _whole(request: Request, most: int, memory: BudgetReservation) -> bytes:
    parts, size = list[bytes](), 0
    refusal: RequestRefused | None = None
    async for part in request.stream():
        size += len(part)
        if size > most + LARGEST_DISCARDED:
            break
        refusal = refusal or _refusal(size, most, memory)
        if refusal is None:
            parts.append(part)
        else:
            parts.clear()
            memory.resize(0)
    if refusal is not None:
        raise refusal
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _refusal(size: int, most: int, memory: BudgetReservation) -> RequestRefused | None:
    """Why a body of this size cannot be held."""
    if size > most:
        return RequestRefused(413, f"request too large (at most {most} bytes)")
    try:
        memory.resize(size)
    except RequestRefused as refusal:
        return refusal
    return None


async def unless_gone(request: Request, answer: Future[T]) -> T:
    """Wait for the answer. Raises ``ClientDisconnect`` as soon as the client has disconnected."""
    leaving = asyncio.create_task(_cancel_when_gone(request, answer))
    try:
        return await answer
    except asyncio.CancelledError:
        if leaving.done() and not leaving.cancelled():
            raise ClientDisconnect from None
        raise
    finally:
        leaving.cancel()


async def _cancel_when_gone(request: Request, answer: Future[T]) -> None:
    """The receive function after the body has been read: only the end of the connection follows."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answer.cancel()
