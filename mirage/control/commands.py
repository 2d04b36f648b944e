"""Commands on their way from other threads to the loop."""

from __future__ import annotations

from collections import deque
from threading import Event
from typing import TYPE_CHECKING

from mirage.domain.command import Asked

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mirage.domain.command import Command


class CommandQueue:
    """Any thread puts, the loop's thread takes. The loop's wait ends as soon as something is put."""

    def __init__(self) -> None:
        self._asked: deque[Asked] = deque()
        self._awake = Event()

    def put(self, command: Command) -> Future[str]:
        """Ask; the answer comes with the loop's next cycle."""
        asked = Asked(command)
        self._asked.append(asked)
        self._awake.set()
        return asked.answer

    def take(self) -> tuple[Asked, ...]:
        """All that was asked since the last call, in order."""
        self._awake.clear()
        return tuple(self._asked.popleft() for _ in range(len(self._asked)))

    def wake(self) -> None:
        """End the loop's wait without a command (a signal came in)."""
        self._awake.set()

    def wait(self, seconds: float) -> bool:
        """Block until something is put or ``wake`` is called, at most so long; whether that was so."""
        return self._awake.wait(seconds)


class NoCommands:
    """A world in which nobody asks for anything."""

    def take(self) -> tuple[Asked, ...]:
        """Never any."""
        return ()
