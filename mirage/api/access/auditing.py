"""Audit log of requests: every change with user, authentication and result; attempts to access others' chains.

The entry of a change is written before its response is sent, that of a rejected request afterwards: the response
time must not show why a request was rejected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.access.dependencies import known_caller
from mirage.api.access.rates import Rates, TooOften
from mirage.api.conventions.threads import query
from mirage.store.audit import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirage.api.access.auditwriter import AuditWriter
    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_REFUSED = 100
"""Entries about rejected requests of one user before further ones are left out."""
_EVERY = 60.0
"""Seconds until one more entry is allowed."""
_NOTE = "mirage.audit"
_DONE = "done"
_BESIDE = ("/api/v1/agent/",)
"""Responses of agents: the audit log has their actions already, under their users' names."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a route adds to the audit entry of its request."""

    action: str = ""
    """Empty: method and path of the request."""
    chain: ChainId | None = None
    refused: str = ""
    """Reason of a rejection that is to be audited although nothing has changed."""


def note(
    scope: MutableMapping[str, Any], action: str = "", chain: ChainId | None = None, refused: str = ""
) -> None:
    """Add details to the audit entry of a request. ``scope`` is that of the request."""
    scope[_NOTE] = Note(action, chain, refused)


class Auditing:
    """Middleware that writes audit entries: before the response, or after it for a rejected request."""

    def __init__(self, app: ASGIApp, writer: AuditWriter, now: Callable[[], Seconds]) -> None:
        self._app, self._writer, self._now = app, writer, now
        self._refused = Rates(1 / _EVERY, MOST_REFUSED)
        self._left_out: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and write its entry as soon as the status is known."""
        refused: list[AuditEntry] = []

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and (entry := self._entry(scope, message["status"])):
                if entry.result == _DONE:
                    await query(entry.user, self._writer.write, entry)
                else:
                    refused.append(entry)
            await send(message)

        try:
            await self._app(scope, receive, told if scope["type"] == "http" else send)
        finally:
            for entry in refused:
                self._writer.add(entry)

    def _entry(self, scope: Scope, status: int) -> AuditEntry | None:
        """Return the audit entry; ``None`` without a change and without an attempt that was denied."""
        said, caller = scope.pop(_NOTE, Note()), known_caller(scope)
        changes = scope["method"] not in _READING and not scope["path"].startswith(_BESIDE)
        if caller is None or not (said.refused or (changes and (status < 400 or status == 403))):
            return None
        action = said.action or f"{scope['method']} {scope['path']}"[:200]
        result = said.refused or (_DONE if status < 400 else f"rejected ({status})")
        if result != _DONE:
            try:
                self._refused.take(caller.name)
            except TooOften:
                self._left_out[caller.name] += 1
                return None
            if more := self._left_out.pop(caller.name, 0):
                result += f"; {more} earlier rejections have no entry"
        return AuditEntry(self._now(), caller.name, caller.uid, action, said.chain, result, caller.how)
