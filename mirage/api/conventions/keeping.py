"""Answers are put together once for each state of the daemon, however many ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.conventions.holding import Held
from mirage.api.conventions.tags import tag_of
from mirage.api.conventions.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


@dataclass(frozen=True, slots=True)
class Kept:
    """A document, ready to be sent."""

    body: bytes
    tag: str
    further: str | None
    """Of a page: the next one's cursor."""


class KeptBodies:
    """Documents of the present state. For the server's event loop only."""

    def __init__(self) -> None:
        self._kept = Held[asyncio.Future[Kept]]()

    async def get(self, state: object, key: Hashable, make: Callable[[], tuple[bytes, str | None]]) -> Kept:
        """The document under ``key``; where nobody has asked before ``make`` puts it together, in a thread.

        ``make`` gives the next page's cursor too, and may raise: then nothing is kept.

        A document holds as long as ``state`` is the same object.
        """
        making = self._kept.get(state, key)
        if making is None:
            making = asyncio.ensure_future(run_in_thread("", _made, make))
            self._kept.put(state, key, making)
        try:
            return await asyncio.shield(making)
        except Exception:
            self._kept.drop(key)
            raise


def _made(make: Callable[[], tuple[bytes, str | None]]) -> Kept:
    body, further = make()
    return Kept(body, tag_of(body), further)
