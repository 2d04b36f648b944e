"""Builds each document once per state of the daemon."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.access.concurrency import ActiveRequest, activate
from mirage.api.conventions.holding import Held
from mirage.api.conventions.tags import tag_of
from mirage.api.conventions.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


@dataclass(frozen=True, slots=True)
class Kept:
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
    ) -> Kept:
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

    async def result(self) -> Kept:
        """Wait for the document. Raises what ``make`` raises."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self._active.presence.end()
                self._active.leave()

    async def _run(self, caller: str, make: Callable[[], tuple[bytes, str | None]]) -> Kept:
        activate(self._active)
        return await run_in_thread(caller, _made, make)


def _made(make: Callable[[], tuple[bytes, str | None]]) -> Kept:
    body, further = make()
    return Kept(body, tag_of(body), further)
