"""Whether a successor is to be submitted now: observe, ask the predictors, weigh, and write down why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.decision import Hold
from mirage.domain.journal import Entry, EntryKind
from mirage.provisioner.decide import forced, weigh

if TYPE_CHECKING:
    from mirage.control.guard import Guard, Guards
    from mirage.control.observing import Observer
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Decision, Observation
    from mirage.domain.job import Job
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Journal
    from mirage.provisioner.decide import DecisionRule


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides for one chain at a time, and has the predictors in shadow decide as well."""

    observer: Observer
    guards: Guards
    rule: DecisionRule
    journal: Journal

    def decide(self, record: ChainRecord, predecessor: Job | None, snapshot: Snapshot) -> Decision:
        """The decision, written down with the prediction that led to it."""
        observation = self._observe(record, predecessor, snapshot)
        if (decision := forced(observation)) is not None:
            self._write(record, observation, EntryKind.DECISION, _said(decision), record.next_index)
            return decision
        guard = self.guards.of(record.chain.predictor)
        decision = self._weigh(record, observation, guard, EntryKind.DECISION)
        for shadow in self.guards.shadows:
            if shadow is not guard:
                self._weigh(record, observation, shadow, EntryKind.SHADOW)
        return decision

    def _observe(self, record: ChainRecord, predecessor: Job | None, snapshot: Snapshot) -> Observation:
        request = record.chain.link_request(record.next_index)
        wants = self.guards.wants_of(record.chain.predictor)
        return self.observer.observe(snapshot, predecessor, request, wants)

    def _weigh(self, record: ChainRecord, observation: Observation, guard: Guard, kind: EntryKind) -> Decision:
        answer = guard.predict(observation)
        name = guard.predictor.name
        if answer.trouble:
            text = answer.trouble if kind is EntryKind.DECISION else f"{name}, in shadow: {answer.trouble}"
            self._write(record, observation, EntryKind.TROUBLE, text)
        decision = weigh(observation, answer.prediction, self.rule.of(record.chain))
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
        if not (answer.trouble and kind is EntryKind.SHADOW):  # the fallback's answer says nothing of a shadow
            self.journal.write(entry)
        return decision

    def _write(
        self, record: ChainRecord, observation: Observation, kind: EntryKind, text: str, link: int = 0
    ) -> None:
        self.journal.write(Entry(observation.time, record.chain.chain_id, kind, text, link))


def _said(decision: Decision) -> str:
    return f"{'hold' if isinstance(decision, Hold) else 'submit'}: {decision.reason}"
