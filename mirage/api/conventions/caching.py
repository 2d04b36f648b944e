"""Caches per state of the daemon: values, documents and whole responses.

Repeated requests skip the router, the most expensive part. The layer of whole responses is the innermost one, so
that authentication, rates and all other layers still apply.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from starlette.requests import Request

from mirage.api.access.concurrency import ActiveRequest, activate
from mirage.api.access.dependencies import caller_of
from mirage.api.conventions.documents import not_modified, tag_of
from mirage.api.conventions.problems import answer_to
from mirage.api.conventions.threads import run_in_thread
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirage.api.access.caller import Caller

MOST = 64
V = TypeVar("V")


class Held(Generic[V]):
    """Bounded cache for one state, compared by identity; the oldest entries are dropped first."""

    def __init__(self) -> None:
        self._state: object = None
        self._held: dict[Hashable, V] = {}

    def get(self, state: object, key: Hashable) -> V | None:
        """Return the value stored under ``key`` for this state."""
        return self._held.get(key) if state is self._state else None

    def put(self, state: object, key: Hashable, value: V) -> None:
        """Store a value; values of another state are dropped."""
        if state is not self._state:
            self._state, self._held = state, {}
        while len(self._held) >= MOST:
            self._held.pop(next(iter(self._held)))
        self._held[key] = value

    def drop(self, key: Hashable) -> None:
        """Drop the value under ``key``."""
        self._held.pop(key, None)


@dataclass(frozen=True, slots=True)
class SerializedDocument:
    """A serialised document."""

    body: bytes
    tag: str
    further: str | None
    """Cursor of the next page."""


class KeptBodies:
    """Documents of the current state. For the server's event loop only."""

    def __init__(self) -> None:
        self._kept = Held[_Making]()

    async def get(
        self, state: object, caller: str, key: Hashable, make: Callable[[], tuple[bytes, str | None]]
    ) -> SerializedDocument:
        """Return the document under ``key``; ``make`` builds a new one, in a thread of the caller's share.

        ``make`` also returns the next page's cursor. If it raises, nothing is stored.

        A document is valid as long as ``state`` is the same object.
        """
        making = self._kept.get(state, key)
        if making is None:
            making = _Making(caller, make)
            self._kept.put(state, key, making)
        try:
            return await making.result()
        except BaseException:
            if not making.lasts and self._kept.get(state, key) is making:
                self._kept.drop(key)
            raise


class _Making:
    """A document being built; cancelled once all requests for it have left."""

    def __init__(self, caller: str, make: Callable[[], tuple[bytes, str | None]]) -> None:
        self._task = asyncio.ensure_future(self._run(caller, make))
        self._active = ActiveRequest(self._task.cancel)
        self._waiting = 0

    @property
    def lasts(self) -> bool:
        """Whether other requests may still use it."""
        if not self._task.done():
            return self._waiting > 0
        return not self._task.cancelled() and self._task.exception() is None

    async def result(self) -> SerializedDocument:
        """Wait for the document. Raises what ``make`` raises."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self._active.presence.end()
                self._active.leave()

    async def _run(self, caller: str, make: Callable[[], tuple[bytes, str | None]]) -> SerializedDocument:
        activate(self._active)
        return await run_in_thread(caller, _made, make)


def _made(make: Callable[[], tuple[bytes, str | None]]) -> SerializedDocument:
    body, further = make()
    return SerializedDocument(body, tag_of(body), further)


class ReadyAnswers:
    """Responses to GET by path, query and caller. For the server's event loop only."""

    def __init__(self, state: Callable[[], object]) -> None:
        """``state``: returns the current state; responses are valid as long as it is the same object."""
        self._present = state
        self._answers: Held[Response] = Held()
        self.paths: set[str] = set()
        """Paths with cached responses."""

    def keep(self, request: Request, caller: Caller, state: object, answer: Response) -> Response:
        """Store and return ``answer`` for this path, query and caller as long as ``state`` is current.

        Of the request it may depend only on these and ``If-None-Match``.
        """
        if answer.status_code == 200:
            self._answers.put(state, _key(request.scope, caller), answer)
            self.paths.add(request.scope["path"])
        return answer

    def find(self, request: Request, caller: Caller) -> Response | None:
        """Return the stored response of the current state, or 304 if the client has it."""
        answer = self._answers.get(self._present(), _key(request.scope, caller))
        return answer and (not_modified(request, answer) or answer)


class ReadyLayer:
    """Middleware that sends cached responses, and passes other requests to the router."""

    def __init__(self, app: ASGIApp, answers: ReadyAnswers) -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate, and send the cached response if there is one."""
        answer: ASGIApp = self._app
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in self._answers.paths:
            request = Request(scope)
            try:
                answer = self._answers.find(request, await caller_of(request)) or self._app
            except MirageError as error:
                answer = answer_to(error)
        await answer(scope, receive, send)


def _key(scope: Scope, caller: Caller) -> tuple[str, bytes, Caller]:
    return scope["path"], scope["query_string"], caller
