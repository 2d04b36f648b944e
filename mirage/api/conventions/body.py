"""Bodies of requests, no larger than they have any reason to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from fastapi import Request


async def read_body(request: Request, largest: int) -> bytes:
    """The body. Raises ``HTTPException`` (413) once it is longer than ``largest`` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise HTTPException(413, f"the body is longer than {largest} bytes")
        parts.append(part)
    return b"".join(parts)
