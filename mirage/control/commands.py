"""Commands of users: on their way from other threads to the loop, and applied to the stored chains.

The loop applies them at the start of a cycle. Each user's commands may bring on so many cycles only: every
cycle costs Slurm queries.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING

from mirage.control.actions import journal_entry
from mirage.control.status import ChainFault
from mirage.domain.command import AddChain, LiftProtection, PendingCommand, PutAway, UpdateChain
from mirage.domain.errors import MirageError
from mirage.domain.job import NEVER
from mirage.domain.journal import EntryKind
from mirage.provisioner import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Future

    from mirage.control.guard import Guards
    from mirage.control.stores import ChangedEntries, CountedChains
    from mirage.domain.command import Command
    from mirage.domain.job import Seconds
    from mirage.ports import CommandSource
    from mirage.provisioner.limits import Quotas

MOST = 60
"""Cycles that one user's commands bring on without a pause: a script that submits many chains does not wait."""


class WakeBudget:
    """One bucket per user. For the loop's thread only."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.every = 10.0
        """Real seconds after which a user whose bucket is empty may bring on another cycle."""
        self._now = now
        self._levels: dict[str, tuple[float, float]] = {}
        """Of buckets that are not full: the level, and when it was that."""

    def delay(self, users: Collection[str]) -> float:
        """Return the seconds until a command of one of ``users`` may start a cycle; infinite without users."""
        levels = [self._level(user) for user in users]
        return max(0.0, 1 - max(levels)) * self.every if levels else math.inf

    def take(self, users: Collection[str]) -> frozenset[str]:
        """Charge each of ``users`` who may bring on a cycle now, and return them."""
        found = frozenset(user for user in users if self._level(user) >= 1)
        now = self._now()
        for user in found:
            self._levels[user] = self._level(user) - 1, now
        self._levels = {user: held for user, held in self._levels.items() if self._level(user) < MOST}
        return found

    def _level(self, user: str) -> float:
        now = self._now()
        level, then = self._levels.get(user, (float(MOST), now))
        return min(float(MOST), level + (now - then) / self.every)


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
        self._asked: deque[PendingCommand] = deque()
        self._awake = Event()
        self._woken = False

    def put(self, command: Command) -> Future[str]:
        """Ask; the answer comes with the loop's next cycle. Cancel it to withdraw the command."""
        asked = PendingCommand(command)
        with self._lock:
            self._asked.append(asked)
        asked.answer.add_done_callback(self._withdraw)
        self._awake.set()
        return asked.answer

    def take(self) -> tuple[PendingCommand, ...]:
        """The oldest command of each user; applied before the chains are decided."""
        return self._taken(1)

    def take_more(self) -> tuple[PendingCommand, ...]:
        """The next commands of each user, so that one cycle applies ``MOST_OF_ONE`` at most; users by turns.

        Another cycle has to follow, which acts on them: only commands of users who may bring it on are taken.
        """
        return self._taken(MOST_OF_ONE - 1, self.wakes.take(self._users()))

    def take_all(self) -> tuple[PendingCommand, ...]:
        """All that was asked and not taken, in order."""
        self._begin()
        with self._lock:
            taken, self._asked = self._asked, deque()
        return _standing(taken)

    def _users(self) -> frozenset[str]:
        with self._lock:
            return frozenset(asked.command.by for asked in self._asked)

    def _taken(self, most_of_one: int, users: frozenset[str] | None = None) -> tuple[PendingCommand, ...]:
        self._begin()
        seen: Counter[str] = Counter()
        turns: list[tuple[int, PendingCommand]] = []
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


def _standing(taken: Iterable[PendingCommand]) -> tuple[PendingCommand, ...]:
    """Those that were not withdrawn; from now on they cannot be."""
    return tuple(asked for asked in taken if asked.answer.set_running_or_notify_cancel())


class NoCommands:
    """A command source that is always empty."""

    def take(self) -> tuple[PendingCommand, ...]:
        """Never any."""
        return ()

    def take_more(self) -> tuple[PendingCommand, ...]:
        """Never any."""
        return ()


@dataclass(frozen=True, slots=True)
class CommandApplier:
    """Stores what the users' commands make of their chains."""

    commands: CommandSource
    chains: CountedChains
    journal: ChangedEntries
    guards: Guards
    quotas: Quotas
    publish: Callable[[], None]
    """Show other threads the chains as they are stored now, before any command is answered."""

    def apply_first(self, now: Seconds) -> list[ChainFault]:
        """Apply the oldest command of each user, before the decisions; return unexpected errors (bugs)."""
        return self._apply_all(self.commands.take(), now)

    def apply_more(self, now: Seconds) -> tuple[list[ChainFault], Seconds]:
        """After the decisions: some more, and when the next cycle is to come, which acts on them."""
        further = self.commands.take_more()
        return self._apply_all(further, now), now + 1 if further else NEVER

    def _apply_all(self, commands: Iterable[PendingCommand], now: Seconds) -> list[ChainFault]:
        """Apply the commands one by one, each with a separate answer; return unexpected errors (bugs)."""
        faults = list[ChainFault]()
        answers: list[tuple[PendingCommand, str | Exception]] = []
        for asked in commands:
            try:
                answers.append((asked, self._apply(asked, now)))
            except Exception as error:
                answers.append((asked, error))
                if not isinstance(error, MirageError):
                    faults.append(ChainFault(None, error))
        try:
            if answers:
                self.publish()
        finally:
            for asked, answer in answers:
                if isinstance(answer, str):
                    asked.answer.set_result(answer)
                else:
                    asked.answer.set_exception(answer)
        return faults

    def _apply(self, asked: PendingCommand, now: Seconds) -> str:
        """Raises what the command deserves: ``UnknownChain``, ``ConfigError``, ``PluginNotFound``."""
        command, text = asked.command, commands.sentence(asked.command)
        if isinstance(command, LiftProtection):
            for record in commands.forgiven(self.chains.load(), now):
                self.chains.save(record)
            self.journal.write(journal_entry(None, now, EntryKind.COMMAND, text))
            return text
        if isinstance(command, PutAway):
            for record in self.chains.load():
                if record.chain.owner == command.name:
                    away = commands.put_away(record, command, now)
                    self.chains.save(away, journal_entry(away, now, EntryKind.COMMAND, text))
            return text
        if isinstance(command, AddChain):
            self.guards.check(command.chain.predictor)
        if isinstance(command, UpdateChain):
            self.guards.check(command.after.predictor)
        record = commands.apply_command(self.chains.tally, command, now, self.quotas)
        self.chains.save(record, journal_entry(record, now, EntryKind.COMMAND, text))
        return text
