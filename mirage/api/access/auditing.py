"""Every change is in the audit: who, how they proved it, what, what came of it; and attempts at others' chains."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.access.dependencies import known_caller
from mirage.api.access.rates import Rates, TooOften
from mirage.api.conventions.threads import query
from mirage.domain.errors import StoreUnavailable
from mirage.store.audit import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds
    from mirage.store.audit import AuditLog

_LOG = logging.getLogger(__name__)
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_REFUSED = 100
"""Lines about requests of one user that were refused, before any is left out."""
_EVERY = 60.0
"""Seconds after which there is one more."""
_NOTE = "mirage.audit"
_BESIDE = ("/api/v1/agent/",)
"""Agents' answers: what they did is in the audit already, as done in their users' names."""


@dataclass(frozen=True, slots=True)
class Note:
    """What the audit is to say of a request."""

    action: str = ""
    """Empty: the address tells."""
    chain: ChainId | None = None
    refused: str = ""
    """Why it was refused, where that is to be in the audit though nothing has changed."""


def note(
    scope: MutableMapping[str, Any], action: str = "", chain: ChainId | None = None, refused: str = ""
) -> None:
    """Tell the audit more of a request than its address says. ``scope`` is the request's."""
    scope[_NOTE] = Note(action, chain, refused)


class Auditing:
    """Writes a line before the answer goes out."""

    def __init__(self, app: ASGIApp, log: AuditLog, now: Callable[[], Seconds]) -> None:
        self._app, self._log, self._now = app, log, now
        self._refused = Rates(1 / _EVERY, MOST_REFUSED)
        self._left_out: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the answer as it begins."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and (entry := self._entry(scope, message["status"])):
                await query(entry.user, self._write, entry)
            await send(message)

        await self._app(scope, receive, told if scope["type"] == "http" else send)

    def _entry(self, scope: Scope, status: int) -> AuditEntry | None:
        """The line; ``None``: nothing has changed, and nobody has tried what they may not."""
        said, caller = scope.pop(_NOTE, Note()), known_caller(scope)
        changes = scope["method"] not in _READING and not scope["path"].startswith(_BESIDE)
        if caller is None or not (said.refused or (changes and (status < 400 or status == 403))):
            return None
        action = said.action or f"{scope['method']} {scope['path']}"[:200]
        result = said.refused or ("done" if status < 400 else f"refused ({status})")
        if result != "done":
            try:
                self._refused.take(caller.name)
            except TooOften:
                self._left_out[caller.name] += 1
                return None
            if more := self._left_out.pop(caller.name, 0):
                result += f"; {more} more were refused before, of which there are no lines"
        return AuditEntry(self._now(), caller.name, caller.uid, action, said.chain, result, caller.how)

    def _write(self, entry: AuditEntry) -> None:
        try:
            self._log.write(entry)
        except StoreUnavailable as error:
            extra = {"always": True}
            _LOG.warning(
                "not in the audit: %s: %s: %s: %s", entry.user, entry.action, entry.result, error, extra=extra
            )
