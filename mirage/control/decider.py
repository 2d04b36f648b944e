"""Decisions of the loop: whether to submit a successor now, and what a handover would have cost without it.

Both observe, query the predictors and write an entry; the appraisal is made once, as the predecessor ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.control.guard import Asker
from mirage.control.status import error_text
from mirage.domain.decision import Defer, Wants, forecast_of
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.objective import Alternative, submitted_at_end
from mirage.predictors.auto import no_job_waits
from mirage.provisioner.decide import forced, submission_due, weigh
from mirage.provisioner.steering import as_expected

if TYPE_CHECKING:
    from mirage.control.guard import Guards, PredictorGuard
    from mirage.control.observations import ObservationBuilder
    from mirage.control.stores import ChangedEntries
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Decision, Observation, Prediction, WaitForecast
    from mirage.domain.job import Job, Seconds
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot
    from mirage.provisioner.decide import DecisionRule


@dataclass(frozen=True, slots=True)
class Appraiser:
    """Estimate by the active predictor; if it predicts no range, by its fallback."""

    observer: ObservationBuilder
    guards: Guards
    journal: ChangedEntries

    def appraise(self, record: ChainRecord, snapshot: Snapshot, latest: Seconds) -> ChainRecord:
        """The record, with the wait of a successor submitted now where its predecessor has just ended.

        ``latest``: seconds after that end; later the queue is another one. Raises ``StoreUnavailable``: no other
        error costs the chain its turn.
        """
        link = unappraised(record, snapshot.time, latest)
        if link is None:
            return record
        try:
            return self._appraised(record, link, snapshot)
        except StoreUnavailable:
            raise
        except Exception as error:
            text = f"cannot estimate the time saved by the handover to link {link.index}: {error_text(error)}"
            self.journal.write(Entry(snapshot.time, record.chain.chain_id, EntryKind.TROUBLE, text, link.index))
        return record

    def _appraised(self, record: ChainRecord, link: Link, snapshot: Snapshot) -> ChainRecord:
        guard = self.guards.of("")
        job = snapshot.link(link.tag, record.chain.owner)
        without = _without(snapshot, job)
        if job is not None and no_job_waits(without, job.partition):  # its predecessor's nodes are free
            return record.with_link(replace(link, alternative=Alternative.certain(0)))
        observation = self.observer.observe(without, None, record.chain.link_request(link.index), guard.wants)
        forecast = _range_of(guard.predict(observation).prediction)
        if forecast is None:
            forecast = _range_of(guard.instead(observation, "predicts no range").prediction)
        if forecast is None:
            return record
        waits = (max(0, round(forecast.at(level) - snapshot.time)) for level in (0.1, 0.5, 0.9))
        return record.with_link(replace(link, alternative=Alternative(*waits)))


def unappraised(record: ChainRecord, now: Seconds, latest: Seconds) -> Link | None:
    """The link that was submitted early to a predecessor whose end came within ``latest`` before ``now``."""
    after: Link | None = None
    for link in reversed(record.links) if not record.over else ():
        if not (link.started or link.waiting):
            continue
        if not link.final:
            after = link
            continue
        if after is None or after.alternative is not None or not link.end_known:
            return None
        if after.submit == ABSENT or submitted_at_end(after.submit, link.end, link.limit_end):
            return None
        return after if link.end <= now <= link.end + latest else None
    return None


def _without(snapshot: Snapshot, job: Job | None) -> Snapshot:
    """The same queue, had the job never been submitted."""
    if job is None:
        return snapshot
    pending, running = (
        jobs.take(np.flatnonzero(jobs.job_id != int(job.job_id))) for jobs in (snapshot.pending, snapshot.running)
    )
    return replace(snapshot, pending=pending, running=running)


def _range_of(prediction: Prediction) -> WaitForecast | None:
    """``None`` where no start is predicted, or a single time, as by predictors that only follow a rule."""
    forecast = forecast_of(prediction)
    return forecast if forecast is not None and len(forecast.starts) > 1 else None


_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Decider:
    """Decide for one chain at a time, also by the shadow predictors, whose decisions are only recorded."""

    observer: ObservationBuilder
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

    def _weigh_in_shadow(self, record: ChainRecord, observation: Observation, shadow: PredictorGuard) -> None:
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

    def _weigh(
        self, record: ChainRecord, observation: Observation, guard: PredictorGuard, kind: EntryKind
    ) -> Decision:
        answer = guard.predict(observation)
        name = guard.predictor.name
        if answer.trouble:
            text = answer.trouble if kind is EntryKind.DECISION else f"shadow predictor {name}: {answer.trouble}"
            self._write(record, observation, EntryKind.TROUBLE, text)
        rule = self.rule.of(record.chain)
        decision = weigh(observation, answer.prediction, rule)
        if self.between_polls and kind is EntryKind.DECISION and isinstance(decision, Defer):
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
    return f"{'hold' if isinstance(decision, Defer) else 'submit'}: {decision.reason}"
