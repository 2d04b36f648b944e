"""``Idempotency-Key``: a request repeated after a lost response is not executed again.

The same caller, key and request get the same response for one day. Responses with a secret, and temporary errors,
are not stored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from mirage.api.access.dependencies import caller_of
from mirage.api.conventions.problems import answer_to, problem
from mirage.api.conventions.threads import query
from mirage.documentreading import parse_own_json
from mirage.domain.errors import MirageError, StoreUnavailable
from mirage.store.access import StoredAnswer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)
_HEADER = "idempotency-key"
_LONGEST_KEY = 200
_DAY = 86_400
_KEPT = ("content-type", "location")
_LARGEST = 1 << 20
_PASSING = frozenset({401, 403, 408, 429, 499})


class AnswerStorage(Protocol):
    """Storage of responses; both methods raise ``StoreUnavailable``."""

    def find(self, caller: str, key: str, since: int) -> StoredAnswer | None:
        """Return the stored response to this caller and key."""

    def keep(self, answer: StoredAnswer, since: int) -> None:
        """Store a response; drops those before ``since``."""


class IdempotencyLayer:
    """Middleware that repeats the stored response for a known key."""

    def __init__(self, app: ASGIApp, storage: AnswerStorage) -> None:
        self._app, self._storage = app, storage
        self._busy: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle POST requests with a key; pass on all others."""
        if scope["type"] != "http" or scope["method"] != "POST" or not (key := Headers(scope=scope).get(_HEADER)):
            await self._app(scope, receive, send)
            return
        try:
            answer = await self._answered(Request(scope, receive), key)
        except (MirageError, HTTPException) as error:
            answer = answer_to(error)
        await answer(scope, receive, send)

    async def _answered(self, request: Request, key: str) -> Response:
        if len(key) > _LONGEST_KEY or not key.isascii() or not key.isprintable():
            return problem(HTTPStatus.BAD_REQUEST, f"Idempotency-Key: up to {_LONGEST_KEY} ASCII characters")
        caller = (await caller_of(request)).name
        if (caller, key) in self._busy:
            return problem(HTTPStatus.CONFLICT, "Idempotency-Key: the first request is still in progress")
        self._busy.add((caller, key))
        try:
            return await self._once(request, caller, key)
        finally:
            self._busy.discard((caller, key))

    async def _once(self, request: Request, caller: str, key: str) -> Response:
        body = await request.body()
        digest = hashlib.sha256(
            f"{request.method} {request.url.path}?{request.url.query}\n".encode() + body
        ).digest()
        since = int(time.time()) - _DAY
        known = await query(caller, self._storage.find, caller, key, since)
        if known is not None and known.digest != digest:
            text = "Idempotency-Key: already used for another request; use a new key"
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, text)
        if known is not None:
            return Response(
                known.body, known.status, {**dict(parse_own_json(known.headers)), "Idempotent-Replayed": "true"}
            )
        heard = _Heard(body)
        await self._app(request.scope, heard.receive, heard.send)
        if heard.lasts:
            headers = json.dumps([pair for pair in heard.headers.items() if pair[0] in _KEPT])
            kept = StoredAnswer(caller, key, int(time.time()), digest, heard.status, headers, bytes(heard.body))
            await query(caller, self._keep, kept, since)
        return Response(bytes(heard.body), heard.status, dict(heard.headers))

    def _keep(self, answer: StoredAnswer, since: int) -> None:
        try:
            self._storage.keep(answer, since)
        except StoreUnavailable as error:
            _LOG.warning(
                "event=response_not_stored reason=%r text=%r", str(error), "a repeated request runs again"
            )


class _Heard:
    """Client side of one request: supplies the body and collects the response."""

    def __init__(self, body: bytes) -> None:
        self._asked: bytes | None = body
        self.status = 500
        self.headers = Headers()
        self.body = bytearray()

    @property
    def lasts(self) -> bool:
        """Whether the response is final, and may be stored."""
        passing = self.status >= 500 or self.status in _PASSING
        return (
            not passing and "no-store" not in self.headers.get("cache-control", "") and len(self.body) < _LARGEST
        )

    async def receive(self) -> Message:
        """Return the body, once."""
        body, self._asked = self._asked, None
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Collect the response."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], Headers(raw=message["headers"])
        else:
            self.body += message.get("body", b"")
