"""The handover between the gateways of two links: the successor is ready, and the predecessor exits."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.upstream import CutOff, Inquiry, Unreachable, Upstream

if TYPE_CHECKING:
    from mirage.allocation.inference.serving.addressbook import Address, StateFolder

_PATIENCE = 10.0


async def take_over(folder: StateFolder, own: Address) -> str:
    """Become the gateway that clients find, and notify the predecessor; returns the result for the log.

    The address is written first: clients that have read the old address are still answered there.
    """
    before = folder.read_address()
    folder.write_address(own)
    if before is None or before.url == own.url:
        return "ready"
    headers = [(b"authorization", f"Bearer {before.token}".encode()), (b"content-type", b"application/json")]
    inquiry = Inquiry("POST", "/drain", headers, json.dumps({"to": own.url}).encode())
    upstream = Upstream(before.url, before.token)
    try:
        async with asyncio.timeout(_PATIENCE):
            reply = await upstream.ask(inquiry)
            async for _ in reply.content:
                pass
    except (Unreachable, CutOff, TimeoutError):
        return f"ready; the predecessor's gateway {before.url} is gone"
    reply.close()
    upstream.close()
    if reply.status != 202:
        return f"ready; {before.url} is no longer the predecessor's gateway (status {reply.status})"
    return f"ready; {before.url} forwards its requests to this gateway and drains"
