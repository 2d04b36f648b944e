"""Commands on their way from other threads to the loop."""

from __future__ import annotations

from collections import Counter, deque
from threading import Event
from typing import TYPE_CHECKING

from mirage.domain.command import Asked

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mirage.domain.command import Command

MOST_OF_ONE = 8
"""Commands of one user that one cycle applies; each takes a transaction of the database."""


class CommandQueue:
    """Any thread puts, the loop's thread takes. The loop's wait ends as soon as something is put."""

    def __init__(self) -> None:
        self._asked: deque[Asked] = deque()
        self._awake = Event()
        self._woken = False

    def put(self, command: Command) -> Future[str]:
        """Ask; the answer comes with the loop's next cycle."""
        asked = Asked(command)
        self._asked.append(asked)
        self._awake.set()
        return asked.answer

    def take(self) -> tuple[Asked, ...]:
        """The oldest command of each user; applied before the chains are decided."""
        return self._taken(1)

    def take_more(self) -> tuple[Asked, ...]:
        """The next commands of each user, so that one cycle applies ``MOST_OF_ONE`` at most; users by turns."""
        return self._taken(MOST_OF_ONE - 1)

    def take_all(self) -> tuple[Asked, ...]:
        """All that was asked and not taken, in order."""
        self._woken = False
        self._awake.clear()
        return tuple(self._asked.popleft() for _ in range(len(self._asked)))

    def _taken(self, most_of_one: int) -> tuple[Asked, ...]:
        seen: Counter[str] = Counter()
        turns: list[tuple[int, Asked]] = []
        for asked in self.take_all():
            turns.append((seen[asked.command.by], asked))
            seen[asked.command.by] += 1
        self._asked.extendleft(asked for turn, asked in reversed(turns) if turn >= most_of_one)
        return tuple(asked for turn, asked in sorted(turns, key=lambda one: one[0]) if turn < most_of_one)

    def wake(self) -> None:
        """End the loop's wait without a command (a signal came in)."""
        self._woken = True
        self._awake.set()

    def nudge(self) -> None:
        """Let the loop look up from its wait; no cycle is asked for."""
        self._awake.set()

    def wait(self, seconds: float) -> bool:
        """Block until something is put or ``wake`` or ``nudge`` is called, at most so long.

        Whether a cycle is to come at once.
        """
        self._awake.wait(seconds)
        self._awake.clear()
        return self._woken or bool(self._asked)


class NoCommands:
    """A world in which nobody asks for anything."""

    def take(self) -> tuple[Asked, ...]:
        """Never any."""
        return ()

    def take_more(self) -> tuple[Asked, ...]:
        """Never any."""
        return ()
