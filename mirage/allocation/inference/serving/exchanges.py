"""A request inside the gateway, from the side of the client that waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirage.allocation.inference.serving.admission import GivenUp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.allocation.inference.serving.admission import BudgetReservation

WINDOW = 4 << 20
"""Bytes of one answer that a worker may send ahead of its client."""
_OF_ONE_PART = 512
"""Bytes counted for a part in addition to its content."""


class Unread:
    """The parts of an answer that its client has not taken yet; their bytes count for its request."""

    def __init__(self, memory: BudgetReservation, taken: Callable[[int], None]) -> None:
        """``taken``: called for each part that the client takes, with the bytes to report to the worker."""
        self._memory, self._taken = memory, taken
        self._size = self._untold = 0
        self._parts = asyncio.Queue[memoryview | GivenUp | None]()

    def put(self, part: memoryview) -> None:
        """Add a part. Raises ``Refusal`` where there is no room for it."""
        size = self._size + len(part) + _OF_ONE_PART
        self._memory.resize(size)
        self._size = size
        self._parts.put_nowait(part)

    def end(self, why: GivenUp | None = None) -> None:
        """End the answer; ``why``: reason if it is incomplete."""
        self._parts.put_nowait(why)

    async def take(self) -> memoryview | GivenUp | None:
        """The next part; ``None`` at the end. Raises the reason where the answer is incomplete."""
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
class WorkerAnswer:
    """An answer of the worker."""

    header: dict[str, Any]
    data: memoryview
    unit: str
    queued: float
    """Seconds of waiting before it began."""
    parts: Unread | None = None
    """The parts that follow, of an answer that is sent in parts."""


class Promise(Protocol):
    """The waiting client: a future, or the writer of its connection."""

    def done(self) -> bool:
        """Whether the client no longer waits."""

    def set_result(self, result: WorkerAnswer, /) -> object:
        """Deliver the answer."""

    def set_exception(self, exception: GivenUp, /) -> object:
        """Deliver the reason why there is no answer."""


@dataclass(slots=True)
class Exchange:
    """A request with its waiting client and its memory."""

    tenant: int
    model: int
    arrival: float
    header: dict[str, Any]
    """The message to the worker."""
    content: Sequence[bytes | memoryview]
    answer: Promise
    memory: BudgetReservation
    """Holds the bytes of its content, and then of the unread answer."""
    number: int = -1
    began: float = 0.0
    unit: str = ""
    parts: Unread | None = None

    def reply(self, header: dict[str, Any], data: memoryview) -> None:
        """Deliver the answer, or its beginning."""
        if not self.answer.done():
            self.answer.set_result(WorkerAnswer(header, data, self.unit, self.began - self.arrival, self.parts))

    def fail(self, refusal: GivenUp) -> None:
        """Fail: no answer, or not the rest of it."""
        if self.parts is not None:
            self.parts.end(refusal)
        elif not self.answer.done():
            self.answer.set_exception(refusal)
