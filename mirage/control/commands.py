"""Commands on their way from other threads to the loop."""

from __future__ import annotations

from collections import Counter, deque
from threading import Event, Lock
from typing import TYPE_CHECKING

from mirage.control.wakes import WakeBudget
from mirage.domain.command import Asked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from mirage.domain.command import Command

MOST_OF_ONE = 8
"""Commands of one user that one cycle applies; each takes a transaction of the database."""


class CommandQueue:
    """Any thread puts, the loop's thread takes.

    The loop's wait ends as soon as something is put by a user whose commands have not brought on too many cycles;
    the commands of other users wait for the next cycle.

    A command whose answer is cancelled before it is taken is withdrawn: it is not applied, and nothing of it is
    kept. Once it is taken, its answer cannot be cancelled any more.
    """

    def __init__(self, wakes: WakeBudget | None = None) -> None:
        self.wakes = wakes or WakeBudget()
        self._lock = Lock()
        self._asked: deque[Asked] = deque()
        self._awake = Event()
        self._woken = False

    def put(self, command: Command) -> Future[str]:
        """Ask; the answer comes with the loop's next cycle. Cancel it to withdraw the command."""
        asked = Asked(command)
        with self._lock:
            self._asked.append(asked)
        asked.answer.add_done_callback(self._withdraw)
        self._awake.set()
        return asked.answer

    def take(self) -> tuple[Asked, ...]:
        """The oldest command of each user; applied before the chains are decided."""
        return self._taken(1)

    def take_more(self) -> tuple[Asked, ...]:
        """The next commands of each user, so that one cycle applies ``MOST_OF_ONE`` at most; users by turns.

        Another cycle has to follow, which acts on them: only commands of users who may bring it on are taken.
        """
        return self._taken(MOST_OF_ONE - 1, self.wakes.take(self._users()))

    def take_all(self) -> tuple[Asked, ...]:
        """All that was asked and not taken, in order."""
        self._begin()
        with self._lock:
            taken, self._asked = self._asked, deque()
        return _standing(taken)

    def _users(self) -> frozenset[str]:
        with self._lock:
            return frozenset(asked.command.by for asked in self._asked)

    def _taken(self, most_of_one: int, users: frozenset[str] | None = None) -> tuple[Asked, ...]:
        self._begin()
        seen: Counter[str] = Counter()
        turns: list[tuple[int, Asked]] = []
        with self._lock:
            for asked in self._asked:
                by = asked.command.by
                turns.append((seen[by] if users is None or by in users else most_of_one, asked))
                seen[by] += 1
            self._asked = deque(asked for turn, asked in turns if turn >= most_of_one)
        turns.sort(key=lambda one: one[0])
        return _standing(asked for turn, asked in turns if turn < most_of_one)

    def _begin(self) -> None:
        self._woken = False
        self._awake.clear()

    def _withdraw(self, answer: Future[str]) -> None:
        if answer.cancelled():
            with self._lock:
                self._asked = deque(asked for asked in self._asked if asked.answer is not answer)

    def wake(self) -> None:
        """End the loop's wait without a command, for example after a signal."""
        self._woken = True
        self._awake.set()

    def nudge(self) -> None:
        """Let the loop look up from its wait; no cycle is asked for."""
        self._awake.set()

    def wait(self, seconds: float) -> bool:
        """Block until a command is put or ``wake`` or ``nudge`` is called, at most for the given time.

        Whether a cycle is to come immediately.
        """
        self._awake.wait(min(seconds, self.wakes.delay(self._users())))
        self._awake.clear()
        return self._woken or bool(self.wakes.take(self._users()))


def _standing(taken: Iterable[Asked]) -> tuple[Asked, ...]:
    """Those that were not withdrawn; from now on they cannot be."""
    return tuple(asked for asked in taken if asked.answer.set_running_or_notify_cancel())


class NoCommands:
    """A command source that is always empty."""

    def take(self) -> tuple[Asked, ...]:
        """Never any."""
        return ()

    def take_more(self) -> tuple[Asked, ...]:
        """Never any."""
        return ()
