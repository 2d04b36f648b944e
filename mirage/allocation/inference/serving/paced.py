"""Send large answers only as fast as their clients take them; until then their requests keep places and bytes.

An answer that a client does not read would otherwise fill the gateway's memory without counting for any client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

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
