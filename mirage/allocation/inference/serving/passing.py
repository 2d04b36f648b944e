"""A request passed on to another server, and its answer passed back as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.bodies import Streamed
from mirage.allocation.inference.serving.upstream import CutOff, Inquiry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from mirage.allocation.inference.serving.upstream import Reply


class BrokenOff(ConnectionError):
    """The other server has broken off: the connection to who asked is ended, there is no other way to say so."""


def inquiry_of(request: Request, body: bytes) -> Inquiry:
    """The same request to somebody else."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return Inquiry(request.method, target, list(request.headers.raw), body)


def pass_back(reply: Reply, close: Callable[[], None]) -> Response:
    """The same answer; ``close`` is called when it is through."""

    def through() -> None:
        reply.close()
        close()

    answer = Streamed(_content(reply), reply.status, {}, through)
    answer.raw_headers = reply.headers
    return answer


async def _content(reply: Reply) -> AsyncIterator[bytes]:
    try:
        async for data in reply.content:
            yield data
    except CutOff as error:
        raise BrokenOff(str(error)) from error
