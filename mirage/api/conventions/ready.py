"""Cache of whole responses per state of the daemon: repeated requests skip the router, the most expensive part.

The layer is the innermost one, so that authentication, rates and all other layers still apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request

from mirage.api.access.dependencies import caller_of
from mirage.api.conventions.holding import Held
from mirage.api.conventions.problems import answer_to
from mirage.api.conventions.tags import not_modified
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirage.api.access.caller import Caller


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
