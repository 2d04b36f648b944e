"""Answers that are ready: who asks again for what they were given in the same state of the daemon gets it without
the way through the router, which costs more than all else.

The layer lies within all others, so that nothing is left out that they do for a request; who asks is found out,
and their requests are counted, as everywhere.
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
    """Whole answers to GET, by address, query and caller. For the server's event loop only."""

    def __init__(self, state: Callable[[], object]) -> None:
        """``state``: the present one; answers hold as long as it is the same object."""
        self._present = state
        self._answers: Held[Response] = Held()
        self.paths: set[str] = set()
        """Where an answer has ever been kept."""

    def keep(self, request: Request, caller: Caller, state: object, answer: Response) -> Response:
        """``answer``, which is what ``caller`` gets for this address and query as long as ``state`` lasts.

        It must depend on nothing else that was sent but ``If-None-Match``.
        """
        if answer.status_code == 200:
            self._answers.put(state, _key(request.scope, caller), answer)
            self.paths.add(request.scope["path"])
        return answer

    def find(self, request: Request, caller: Caller) -> Response | None:
        """What was kept in the present state, or that it is what the client has."""
        answer = self._answers.get(self._present(), _key(request.scope, caller))
        return answer and (not_modified(request, answer) or answer)


class ReadyLayer:
    """Gives answers that are ready; all else continues to the router."""

    def __init__(self, app: ASGIApp, answers: ReadyAnswers) -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who asks, and whether there is an answer for them."""
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
