"""Commands applied to the stored chains, at the start of a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.control.faults import Fault
from mirage.control.hands import told
from mirage.domain.command import AddChain, LiftProtection, PutAway, UpdateChain
from mirage.domain.errors import MirageError
from mirage.domain.job import NEVER
from mirage.domain.journal import EntryKind
from mirage.provisioner import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.control.counted import CountedChains
    from mirage.control.guard import Guards
    from mirage.control.journal import ChangedEntries
    from mirage.domain.command import Asked
    from mirage.domain.job import Seconds
    from mirage.ports import Commands
    from mirage.provisioner.quotas import Quotas


@dataclass(frozen=True, slots=True)
class CommandApplier:
    """Stores what the users' commands make of their chains."""

    commands: Commands
    chains: CountedChains
    journal: ChangedEntries
    guards: Guards
    quotas: Quotas
    publish: Callable[[], None]
    """Show other threads the chains as they are stored now, before any command is answered."""

    def apply_first(self, now: Seconds) -> list[Fault]:
        """Apply the oldest command of each user, before the decisions; return unexpected errors (bugs)."""
        return self._apply_all(self.commands.take(), now)

    def apply_more(self, now: Seconds) -> tuple[list[Fault], Seconds]:
        """After the decisions: some more, and when the next cycle is to come, which acts on them."""
        further = self.commands.take_more()
        return self._apply_all(further, now), now + 1 if further else NEVER

    def _apply_all(self, commands: Iterable[Asked], now: Seconds) -> list[Fault]:
        """Apply the commands one by one, each with a separate answer; return unexpected errors (bugs)."""
        faults = list[Fault]()
        answers: list[tuple[Asked, str | Exception]] = []
        for asked in commands:
            try:
                answers.append((asked, self._apply(asked, now)))
            except Exception as error:
                answers.append((asked, error))
                if not isinstance(error, MirageError):
                    faults.append(Fault(None, error))
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

    def _apply(self, asked: Asked, now: Seconds) -> str:
        """Raises what the command deserves: ``UnknownChain``, ``ConfigError``, ``PluginNotFound``."""
        command, text = asked.command, requests.sentence(asked.command)
        if isinstance(command, LiftProtection):
            for record in requests.forgiven(self.chains.load(), now):
                self.chains.save(record)
            self.journal.write(told(None, now, EntryKind.COMMAND, text))
            return text
        if isinstance(command, PutAway):
            for record in self.chains.load():
                if record.chain.owner == command.name:
                    away = requests.put_away(record, command, now)
                    self.chains.save(away, told(away, now, EntryKind.COMMAND, text))
            return text
        if isinstance(command, AddChain):
            self.guards.check(command.chain.predictor)
        if isinstance(command, UpdateChain):
            self.guards.check(command.after.predictor)
        record = requests.obey(self.chains.tally, command, now, self.quotas)
        self.chains.save(record, told(record, now, EntryKind.COMMAND, text))
        return text
