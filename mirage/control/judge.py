"""The decision whether to submit a successor now: observe, query the predictors, weigh, write the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.control.faults import error_text
from mirage.control.guard import Asker
from mirage.domain.decision import Hold, Wants
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import Entry, EntryKind
from mirage.provisioner.decide import forced, submission_due, weigh
from mirage.provisioner.limitwarnings import as_expected

if TYPE_CHECKING:
    from mirage.control.guard import Guard, Guards
    from mirage.control.journal import ChangedEntries
    from mirage.control.observing import Observer
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Decision, Observation
    from mirage.domain.job import Job
    from mirage.domain.snapshot import Snapshot
    from mirage.provisioner.decide import DecisionRule


_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Judge:
    """Decide for one chain at a time, also by the shadow predictors, whose decisions are only recorded."""

    observer: Observer
    guards: Guards
    rule: DecisionRule
    journal: ChangedEntries
    between_polls: bool = False
    """Whether a decision to defer says when a submission will be due."""

    def decide(self, record: ChainRecord, predecessor: Job | None, snapshot: Snapshot) -> Decision:
        """Return the decision, and write it to the journal with its prediction.

        If the chain's predictor cannot be built, or its required inputs are missing, the daemon's own decides.
        """
        predecessor = as_expected(record, predecessor, snapshot.time)
        bare = self._observe(record, predecessor, snapshot, Wants())
        if (decision := forced(bare)) is not None:
            self._write(record, bare, EntryKind.DECISION, _said(decision), record.next_index)
            return decision
        name = record.chain.predictor
        try:
            return self._decide(record, predecessor, snapshot, name)
        except StoreUnavailable:
            raise
        except Exception as error:
            if not name:
                raise
            text = f"{name[:_LONGEST_NAME]}: no prediction: {error_text(error)}; the daemon's predictor is used"
            self._write(record, bare, EntryKind.TROUBLE, text)
        return self._decide(record, predecessor, snapshot, "")

    def _decide(self, record: ChainRecord, predecessor: Job | None, snapshot: Snapshot, name: str) -> Decision:
        guard = self.guards.of(name, Asker(record.chain.owner))
        observation = self._observe(record, predecessor, snapshot, self.guards.wants_of(guard))
        decision = self._weigh(record, observation, guard, EntryKind.DECISION)
        for shadow in self.guards.shadows:
            if shadow is not guard:
                self._weigh_in_shadow(record, observation, shadow)
        return decision

    def _weigh_in_shadow(self, record: ChainRecord, observation: Observation, shadow: Guard) -> None:
        """Record a shadow decision. Neither it nor an error changes the real decision."""
        try:
            self._weigh(record, observation, shadow, EntryKind.SHADOW)
        except StoreUnavailable:
            raise
        except Exception as error:
            text = f"shadow predictor {shadow.predictor.name}: {error_text(error)}"
            self._write(record, observation, EntryKind.TROUBLE, text)

    def _observe(
        self, record: ChainRecord, predecessor: Job | None, snapshot: Snapshot, wants: Wants
    ) -> Observation:
        return self.observer.observe(snapshot, predecessor, record.chain.link_request(record.next_index), wants)

    def _weigh(self, record: ChainRecord, observation: Observation, guard: Guard, kind: EntryKind) -> Decision:
        answer = guard.predict(observation)
        name = guard.predictor.name
        if answer.trouble:
            text = answer.trouble if kind is EntryKind.DECISION else f"shadow predictor {name}: {answer.trouble}"
            self._write(record, observation, EntryKind.TROUBLE, text)
        rule = self.rule.of(record.chain)
        decision = weigh(observation, answer.prediction, rule)
        if self.between_polls and kind is EntryKind.DECISION and isinstance(decision, Hold):
            decision = replace(decision, until=submission_due(observation, answer.prediction, rule))
        if answer.trouble:
            decision = replace(decision, reason=f"{decision.reason}; {name}: {answer.trouble}")
        entry = Entry(
            observation.time,
            record.chain.chain_id,
            kind,
            _said(decision),
            link=record.next_index,
            predictor=answer.by,
            prediction=answer.prediction,
            asked=name if answer.by != name else "",
            model=answer.model,
        )
        if not (answer.trouble and kind is EntryKind.SHADOW):  # a fallback says nothing about the shadow
            self.journal.write(entry)
        return decision

    def _write(
        self, record: ChainRecord, observation: Observation, kind: EntryKind, text: str, link: int = 0
    ) -> None:
        self.journal.write(Entry(observation.time, record.chain.chain_id, kind, text, link))


def _said(decision: Decision) -> str:
    return f"{'hold' if isinstance(decision, Hold) else 'submit'}: {decision.reason}"
