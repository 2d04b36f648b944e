"""A request on its way through the gateway, as who sent it waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mirage.allocation.inference.serving.refusals import GivenUp


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker has said."""

    header: dict[str, Any]
    data: memoryview
    unit: str
    queued: float
    """Seconds before it began."""
    parts: asyncio.Queue[memoryview | GivenUp | None] | None = None
    """What follows, ``None`` at its end, where the answer comes bit by bit."""


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
    number: int = -1
    began: float = 0.0
    unit: str = ""
    parts: asyncio.Queue[memoryview | GivenUp | None] | None = field(default=None)

    def reply(self, header: dict[str, Any], data: memoryview) -> None:
        """All of the answer, or its beginning."""
        if not self.answer.done():
            self.answer.set_result(Answer(header, data, self.unit, self.began - self.arrival, self.parts))

    def fail(self, refusal: GivenUp) -> None:
        """There is no answer, or not the rest of it."""
        if self.parts is not None:
            self.parts.put_nowait(refusal)
        elif not self.answer.done():
            self.answer.set_exception(refusal)
