"""A request on its way through the gateway, as who sent it waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirage.allocation.inference.serving.refusals import GivenUp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.allocation.inference.serving.memorybudget import Reservation

WINDOW = 4 << 20
"""Bytes of one answer that a worker sends before its client has taken them."""
_OF_ONE_PART = 512
"""Bytes that a part takes in addition to its content."""


class Unread:
    """The parts of an answer that comes bit by bit until its client takes them: bytes that its request holds."""

    def __init__(self, memory: Reservation, taken: Callable[[int], None]) -> None:
        """``taken``: called for each part that the client takes, with the bytes to report to the worker."""
        self._memory, self._taken = memory, taken
        self._size = self._untold = 0
        self._parts = asyncio.Queue[memoryview | GivenUp | None]()

    def put(self, part: memoryview) -> None:
        """One more. Raises ``Refusal`` where there is no room for it."""
        size = self._size + len(part) + _OF_ONE_PART
        self._memory.resize(size)
        self._size = size
        self._parts.put_nowait(part)

    def end(self, why: GivenUp | None = None) -> None:
        """No part comes any more; ``why`` there are not all."""
        self._parts.put_nowait(why)

    async def take(self) -> memoryview | GivenUp | None:
        """The next part; ``None`` at the end, or why it is broken off."""
        part = await self._parts.get()
        if isinstance(part, memoryview):
            self._size -= len(part) + _OF_ONE_PART
            self._memory.resize(self._size)
            self._untold += len(part)
            due = self._untold if self._untold >= WINDOW // 4 else 0
            self._untold -= due
            self._taken(due)
        return part


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker has said."""

    header: dict[str, Any]
    data: memoryview
    unit: str
    queued: float
    """Seconds before it began."""
    parts: Unread | None = None
    """What follows, where the answer comes bit by bit."""


class Promise(Protocol):
    """Who waits for the answer: a future, or who writes it to its connection at once."""

    def done(self) -> bool:
        """Nobody waits any more."""

    def set_result(self, result: Answer, /) -> object:
        """Here it is."""

    def set_exception(self, exception: GivenUp, /) -> object:
        """There is none."""


@dataclass(slots=True)
class Exchange:
    """One request."""

    tenant: int
    model: int
    arrival: float
    header: dict[str, Any]
    """What the worker is told."""
    content: Sequence[bytes | memoryview]
    answer: Promise
    memory: Reservation
    """Holds its content, and then what is not read of its answer."""
    number: int = -1
    began: float = 0.0
    unit: str = ""
    parts: Unread | None = None

    def reply(self, header: dict[str, Any], data: memoryview) -> None:
        """All of the answer, or its beginning."""
        if not self.answer.done():
            self.answer.set_result(Answer(header, data, self.unit, self.began - self.arrival, self.parts))

    def fail(self, refusal: GivenUp) -> None:
        """There is no answer, or not the rest of it."""
        if self.parts is not None:
            self.parts.end(refusal)
        elif not self.answer.done():
            self.answer.set_exception(refusal)
