"""Internal API requests of a page, with the credentials of its caller.

A request passes through the whole application again, within the process. So access, errors and paging are the same
for pages and for all other clients.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from mirage.api.access.dependencies import known_caller
from mirage.api.conventions.threads import run_in_thread
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.types import Message

API = "/api/v1"

_KEPT = (b"authorization", b"cookie", b"host", b"x-slurm-user-name", b"x-slurm-user-token")
"""Headers with credentials; all others concern the page itself."""
_FOUND_OUT = "mirage."
_SMALL = 1 << 16
"""Bytes of a document that is parsed without a thread."""
_ROUTED = ("endpoint", "path_params", "route", "router")
"""Scope keys that the router has set for the page."""

Document = TypeVar("Document", bound=BaseModel)


class Refused(MirageError):
    """The API responded with a problem document."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Problem(BaseModel):
    detail: str = ""


class InternalClient:
    """Client of the application that serves ``request``, with the same caller."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def get(self, path: str, kind: type[Document], **query: Any) -> Document:
        """Return the document at ``/api/v1`` + ``path``. Raises ``Refused``.

        ``None`` in ``query`` is omitted; tuples become repeated parameters.
        """
        status, body = await self._send(API + path, query)
        if status >= 400:
            raise Refused(status, _detail(body, status))
        if len(body) <= _SMALL:
            return kind.model_validate_json(body)
        caller = known_caller(self._request.scope)
        return await run_in_thread(caller.name if caller else "", kind.model_validate_json, body)

    async def _send(self, path: str, query: dict[str, Any]) -> tuple[int, bytes]:
        answer, outer, inner = _Answer(), self._request.scope, self._scope(path, query)
        await self._request.app(inner, answer.receive, answer.send)
        for name in inner.keys() - outer.keys():
            if name.startswith(_FOUND_OUT):  # about the caller: valid for the whole page
                outer[name] = inner[name]
        return answer.status, bytes(answer.body)

    def _scope(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        outer = self._request.scope
        given = {name: _text(value) for name, value in query.items() if value is not None}
        inner = {
            "method": "GET",
            "path": outer.get("root_path", "") + path,
            "raw_path": quote(outer.get("root_path", "") + path).encode(),
            "query_string": urlencode(given, doseq=True).encode(),
            "headers": [(name, value) for name, value in outer["headers"] if name in _KEPT],
        }
        return {name: value for name, value in outer.items() if name not in _ROUTED} | inner


class _Answer:
    """Client side of one internal request: no body, and the whole response."""

    def __init__(self) -> None:
        self.status = 500
        self.body = bytearray()
        self._asked = False

    async def receive(self) -> Message:
        if self._asked:  # never disconnects; a task that waits for it is cancelled after the response
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


def _text(value: object) -> str | list[str]:
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _detail(body: bytes, status: int) -> str:
    try:
        return _Problem.model_validate_json(body).detail or f"status {status}"
    except ValidationError:
        return f"status {status}"
