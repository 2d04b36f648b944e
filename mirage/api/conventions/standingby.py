"""Rejects changes on a daemon that is not the leader."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from mirage.api.conventions.problems import problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_CHANGED_HERE = "/api/v1/"
"""Prefix of changes; logging in, elsewhere, changes nothing that daemons share."""
_AGAIN = {"Retry-After": "30"}


class StandingBy:
    """Middleware of a standby: passes reads; rejects changes before their body is read."""

    def __init__(self, app: ASGIApp, impediment: Callable[[], str]) -> None:
        self._app, self._impediment = app, impediment

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to changes with 503 and the reason while there is an impediment."""
        changes = scope["type"] == "http" and scope["method"] not in _READING
        if changes and scope["path"].startswith(_CHANGED_HERE) and (found := self._impediment()):
            answer = problem(HTTPStatus.SERVICE_UNAVAILABLE, f"this daemon does not act now: {found}", _AGAIN)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)
