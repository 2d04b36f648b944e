"""Versions of documents: who has the present one is told so, and sent nothing."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fastapi import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "As the tag in If-None-Match says."}}
"""For the description of addresses that tag their documents."""


def tagged(request: Request, body: bytes, tag: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document with its tag, or 304 where the client has it. ``tag``: where it is known already."""
    sent = {**(headers or {}), "ETag": tag or tag_of(body)}
    whole = Response(body, media_type="application/json", headers=sent)
    return not_modified(request, whole) or whole


def not_modified(request: Request, answer: Response) -> Response | None:
    """304 in place of ``answer``, which has a tag, where the client has that already."""
    said = request.headers.get("if-none-match", "")
    if not said or not _has(said, answer.headers["etag"]):
        return None
    kept = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    return Response(status_code=304, headers=kept)


def tag_of(body: bytes) -> str:
    """The tag of a document."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _has(said: str, tag: str) -> bool:
    return said.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in said.split(","))
