"""Write what one agent run records, and report a journal that cannot be written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirage.allocation.engine.entries import LifeOver, Starting

if TYPE_CHECKING:
    from mirage.allocation.engine.entries import Entry, LifeBegan
    from mirage.allocation.engine.ledger import Ledger
    from mirage.allocation.engine.plan import TaskSpec
    from mirage.allocation.engine.world import World


class Record:
    """The journal and the task states of one agent run, kept in step. Not thread-safe."""

    def __init__(self, life: LifeBegan, ledger: Ledger, world: World) -> None:
        self._life, self._ledger, self._world = life.life, ledger, world
        self._said = ""

    def write(self, entry: Entry, *, first: bool = False) -> None:
        """Write an entry, or keep it until there is room, and apply it. ``first``: raises ``OSError`` instead."""
        self._world.journal.write(entry, first=first)
        self._ledger.fold([(self._life, entry)])

    def announce(self, spec: TaskSpec, attempt: int, parts: dict[str, list[int]]) -> bool | None:
        """Claim an attempt and record its start; whether the claim is ours. ``None``: the disk has no room."""
        folder, journal = self._world.folder, self._world.journal
        try:
            if not folder.claim(spec.name, attempt, self._life):
                return False
            try:
                self.write(Starting(self._world.clock(), spec.name, attempt, parts, spec.share), first=True)
            except OSError:
                folder.give_back(spec.name, attempt)
                raise
        except OSError as error:
            journal.problem = journal.problem or error.strerror or str(error)
            return None
        return True

    def tell(self) -> None:
        """Report once that the journal cannot be written and once that it can be again; retry waiting entries."""
        if self._world.journal.waits:
            with contextlib.suppress(OSError):
                self._world.journal.flush()
        problem, before = self._world.journal.problem, self._said
        place = self._world.folder.path
        if problem and not before:
            what = "running tasks are still monitored, and no task starts until there is room"
            self._world.say(f"{place}: the journal cannot be written: {problem}; {what}")
        elif before and not problem:
            self._world.say(f"{place}: the journal can be written again")
        self._said = problem

    def close(self, why: str, *, over: bool) -> None:
        """Write the last entry, where no step of this agent run runs any more (``over``)."""
        if over:
            self.write(LifeOver(self._world.clock(), why))
        if lost := self._world.journal.close():
            text = "entries of the journal are lost: later links do not know how these tasks have ended"
            self._world.say(f"{self._world.folder.path}: {lost} {text}")
