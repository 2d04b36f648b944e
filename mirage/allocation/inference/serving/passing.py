"""Forward a request to another server and its answer back as it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from mirage.allocation.inference.serving.bodies import Streamed
from mirage.allocation.inference.serving.upstream import CutOff, Inquiry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from mirage.allocation.inference.serving.upstream import Reply


_LENGTH = b"content-length"


class BrokenOff(ConnectionError):
    """The other server has broken off: the client's connection is closed, the only way to report it then."""


def inquiry_of(request: Request, body: bytes) -> Inquiry:
    """The same request for another server."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    target = (path + b"?" + query if query else path).decode("latin-1")
    return Inquiry(request.method, target, list(request.headers.raw), body)


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
