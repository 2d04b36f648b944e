"""ETags: a client that has the current document gets 304 without a body."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fastapi import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Not modified: the client has this version (If-None-Match)."}
}
"""Description of 304 for endpoints with ETags."""


def tagged(request: Request, body: bytes, tag: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response with ETag, or 304 if the client has it. ``tag``: if already known."""
    sent = {**(headers or {}), "ETag": tag or tag_of(body)}
    whole = Response(body, media_type="application/json", headers=sent)
    return not_modified(request, whole) or whole


def not_modified(request: Request, answer: Response) -> Response | None:
    """Return 304 if the client has ``answer``, which has an ETag; otherwise ``None``."""
    said = request.headers.get("if-none-match", "")
    if not said or not _has(said, answer.headers["etag"]):
        return None
    kept = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    return Response(status_code=304, headers=kept)


def tag_of(body: bytes) -> str:
    """Return the ETag of a document."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _has(said: str, tag: str) -> bool:
    return said.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in said.split(","))
