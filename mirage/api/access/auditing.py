"""Every change is in the audit: who, how they proved it, what, its result; and attempts at others' chains.

The line of a change is written before its answer goes out, that of a rejected request after it: the time that an
answer takes must not show why it is a rejection.
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
"""Lines about requests of one user that were rejected, before any is left out."""
_EVERY = 60.0
"""Seconds after which there is one more."""
_NOTE = "mirage.audit"
_DONE = "done"
_BESIDE = ("/api/v1/agent/",)
"""Agents' answers: what they did is in the audit already, as done in their users' names."""


@dataclass(frozen=True, slots=True)
class Note:
    """What the audit is to say of a request."""

    action: str = ""
    """Empty: the address tells."""
    chain: ChainId | None = None
    refused: str = ""
    """Why it was rejected, where that is to be in the audit though nothing has changed."""


def note(
    scope: MutableMapping[str, Any], action: str = "", chain: ChainId | None = None, refused: str = ""
) -> None:
    """Tell the audit more of a request than its address says. ``scope`` is the request's."""
    scope[_NOTE] = Note(action, chain, refused)


class Auditing:
    """Has a line written before the answer goes out, or after it where the request is rejected."""

    def __init__(self, app: ASGIApp, writer: AuditWriter, now: Callable[[], Seconds]) -> None:
        self._app, self._writer, self._now = app, writer, now
        self._refused = Rates(1 / _EVERY, MOST_REFUSED)
        self._left_out: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the answer as it begins."""
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
        """The line; ``None``: nothing has changed, and nobody has tried what they may not."""
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
                result += f"; {more} more were rejected before, of which there are no lines"
        return AuditEntry(self._now(), caller.name, caller.uid, action, said.chain, result, caller.how)
