"""Reads request bodies of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from mirage.api.access.dependencies import known_caller

if TYPE_CHECKING:
    from fastapi import Request

    from mirage.api.access.gate import Gate


async def read_body(request: Request, largest: int) -> bytes:
    """Return the body, counted against the caller's rate. Raises ``HTTPException`` (413) if too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise HTTPException(413, f"the body is longer than {largest} bytes")
        parts.append(part)
    if caller := known_caller(request.scope):
        gate: Gate = request.app.state.service.gate
        gate.charge(caller, request, size)
    return b"".join(parts)
