"""Replies to clients: passed on from another server, and paced.

A large answer is sent only as fast as its client takes it; until then its request keeps places and bytes. An
answer that a client does not read would otherwise fill the gateway's memory without counting for any client.
Rejections and read-only requests, which count for no tenant's rate, have paces of their own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from starlette.responses import Response

from mirage.allocation.inference.serving.bodies import Streamed
from mirage.allocation.inference.serving.upstream import CutOff, UpstreamRequest
from mirage.boundedhttp import PRESENCE, AnswerPace, ClientPresence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from mirage.allocation.inference.serving.upstream import Reply

PIECE = 256 << 10
PATIENCE = 60.0
"""Seconds within which a client must take each part."""


def pieces_of(content: bytes) -> Iterator[memoryview]:
    """The content, in parts that are not copied."""
    whole = memoryview(content)
    return (whole[at : at + PIECE] for at in range(0, len(whole), PIECE))


class PacedAnswer(Response):
    """Sent in parts, each after the client has taken those before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. A client that takes nothing for a minute is disconnected."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            for piece in pieces_of(bytes(self.body)):
                body = {"type": "http.response.body", "body": bytes(piece), "more_body": True}
                await asyncio.wait_for(send(body), PATIENCE)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), PATIENCE)
        except TimeoutError:
            return


REFUSALS_A_SECOND, REFUSALS_AT_ONCE = 200, 200
"""Answers per second to one tenant, or one address."""
AT_A_FRONT = 50
"""Per address at a reverse proxy, which is one address for its gateway; leaves most of the rate to others."""
_GONE = 499
"""The status of a request whose client has disconnected."""
_REFUSAL_WITHIN = 30.0
"""Seconds. A client whose rejections on all connections would take longer gets them faster."""
_LOOK_WITHIN = 2.0
"""Longest delay of health checks in seconds, whatever other clients at the same address send."""


class Paces:
    """Paces rejections and read-only requests: health, models, metrics."""

    def __init__(self, rate: float = REFUSALS_A_SECOND) -> None:
        self._refusals = AnswerPace(rate, REFUSALS_AT_ONCE, _REFUSAL_WITHIN)
        self._looks = AnswerPace(rate, REFUSALS_AT_ONCE, _LOOK_WITHIN)
        self._proven = WeakSet[ClientPresence]()

    def of(self, method: str, status: int) -> AnswerPace | None:
        """The pace that applies to an answer; ``None``: no pace."""
        if 400 <= status < _GONE:
            return self._refusals
        return None if method == "POST" else self._looks

    def prove(self, scope: Scope) -> bool:
        """Whether this is the first proof on its connection: a proxy needs one, which others cannot delay."""
        presence = scope.get(PRESENCE)
        if not isinstance(presence, ClientPresence) or presence in self._proven:
            return False
        self._proven.add(presence)
        return True


_LENGTH = b"content-length"


class BrokenOff(ConnectionError):
    """The other server has broken off: the client's connection is closed, the only way to report it then."""


def inquiry_of(request: Request, body: bytes) -> UpstreamRequest:
    """The same request for another server."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    target = (path + b"?" + query if query else path).decode("latin-1")
    return UpstreamRequest(request.method, target, list(request.headers.raw), body)


def pass_back(reply: Reply, close: Callable[[], None]) -> Response:
    """The same answer; ``close`` is called at its end."""

    def through() -> None:
        reply.close()
        close()

    if reply.whole is not None:
        whole = Response(reply.whole, reply.status)
        whole.raw_headers = _with_length(reply.headers, len(reply.whole))
        through()
        return whole
    answer = Streamed(_content(reply), reply.status, {}, through)
    answer.raw_headers = reply.headers
    return answer


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """A chunked answer that has arrived completely is sent on with its length."""
    if any(name.lower() == _LENGTH for name, _ in headers):
        return headers
    return [*headers, (_LENGTH, str(length).encode())]


async def _content(reply: Reply) -> AsyncIterator[bytes]:
    try:
        async for data in reply.content:
            yield data
    except CutOff as error:
        raise BrokenOff(str(error)) from error
