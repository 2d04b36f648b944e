"""The one loop, for every mode: live, replay, training. Read ``ControlLoop.cycle`` first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus, LinkState
from mirage.domain.decision import Hold, Observation, RecentWaits
from mirage.domain.errors import ClusterUnavailable, SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.provisioner import machine
from mirage.provisioner.decide import DecisionRule, forced, weigh
from mirage.provisioner.events import LinkRefused, LinkSubmitted, PauseAsked, sightings
from mirage.provisioner.limits import Limits, Permit, Usage, permit, refusal_pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.guard import Guard
    from mirage.domain.chain import ChainRecord, Link
    from mirage.domain.decision import Decision
    from mirage.domain.job import JobRequest, Seconds
    from mirage.ports import (
        Actuator,
        ChainStore,
        Clock,
        Cluster,
        Files,
        Journal,
        StartEstimator,
        Ticks,
        WaitHistory,
    )

_HOUR = 3_600


@dataclass(frozen=True, slots=True)
class Outside:
    """All that the loop touches; one object may serve several ports."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator
    waits: WaitHistory
    clock: Clock
    store: ChainStore
    journal: Journal
    files: Files


@dataclass(frozen=True, slots=True)
class Policy:
    """How the loop decides."""

    rule: DecisionRule = field(default_factory=DecisionRule)
    limits: Limits = field(default_factory=Limits)
    settle: Seconds = 120
    """After so many seconds a link that was sent and that no snapshot shows is sent again."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did."""

    sentence: str
    wake: Seconds
    """When the next cycle must come at the latest; ``NEVER``: any time."""
    deciding: bool
    """Whether some chain awaits a decision."""


class ControlLoop:
    """Keeps every stored chain supplied with links. Keeps no state of its own but the last snapshot."""

    def __init__(self, outside: Outside, guard: Guard, policy: Policy) -> None:
        self._outside = outside
        self._guard = guard
        self._policy = policy
        self._last: Snapshot | None = None

    def run(self, ticks: Ticks, finished: Callable[[], bool] = lambda: False) -> None:
        """Cycle until ``ticks`` ends or ``finished()``."""
        cycle = self.cycle()
        while not finished() and ticks.wait(cycle.wake, cycle.deciding):
            cycle = self.cycle()

    def cycle(self) -> Cycle:
        """Look once, then attend to each chain; returns the sentence that explains what was done.

        1. freeze the world        4. observe     7. obtain a permit
        2. note what happened      5. predict     8. store the intent, submit
        3. find what is needed     6. decide      9. write it down
        """
        now = self._outside.clock.now()
        snapshot = self._freeze(now)
        attended = [
            self._attend(record, snapshot, now)
            for record in self._outside.store.load()
            if not record.over or record.live
        ]
        return _joined(attended)

    def _attend(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> Cycle:
        if snapshot.stale:
            text = f"hold: the cluster has not answered since {snapshot.stale_since}"
            return self._explain(record, now, text, deciding=True)
        record = self._catch_up(record, snapshot, now)
        self._cancel_leftovers(record, now)
        match machine.need(record, now, self._policy.settle):
            case machine.Rest(reason):
                return self._explain(record, now, reason, deciding=False)
            case machine.Resubmit(link):
                return self._send(record, link, now)
            case machine.Successor(predecessor):
                return self._consider(record, predecessor, snapshot, now)

    def _consider(self, record: ChainRecord, predecessor: Link | None, snapshot: Snapshot, now: Seconds) -> Cycle:
        observation = self._observe(record, predecessor, snapshot)
        decision = self._decide(record, observation)
        if isinstance(decision, Hold):
            return self._explain(record, now, f"hold: {decision.reason}", deciding=True)
        granted = self._permit(record, now)
        if not granted.granted:
            return self._refrain(record, granted, now)
        record, link = machine.plan(record, decision.reason, now)
        return self._send(record, link, now)

    # 1. freeze the world

    def _freeze(self, now: Seconds) -> Snapshot:
        """The snapshot of this cycle; when the cluster does not answer the last one, marked stale."""
        try:
            self._last = self._outside.cluster.snapshot(queue=self._guard.predictor.wants_queue)
        except ClusterUnavailable as error:
            self._write(None, now, EntryKind.TROUBLE, f"the cluster does not answer: {error}")
            last = self._last or Snapshot.unseen(now)
            self._last = last if last.stale else replace(last, stale_since=last.time)
        return self._last

    # 2. note what happened

    def _catch_up(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> ChainRecord:
        """The record brought up to the snapshot, stored when it changed."""
        file = record.chain.done.file
        events = sightings(record, snapshot, bool(file) and self._outside.files.exists(file))
        if not events:
            return record
        known = len(record.outcomes())
        record = machine.apply_all(record, events, now)
        self._outside.store.save(record)
        for event in events:
            self._write(record, now, EntryKind.EVENT, str(event))
        for outcome in record.outcomes()[known:]:
            text = f"interruption {outcome.interruption} s, overlap {outcome.overlap} s"
            self._write(record, now, EntryKind.OUTCOME, text)
        return record

    def _cancel_leftovers(self, record: ChainRecord, now: Seconds) -> None:
        """Asked again each cycle until a snapshot shows them gone."""
        for link in machine.to_cancel(record):
            try:
                self._outside.actuator.cancel(link.job_id, record.chain.owner)
            except (ClusterUnavailable, UnknownJob) as error:
                self._write(record, now, EntryKind.TROUBLE, f"could not cancel link {link.index}: {error}")
            else:
                self._write(record, now, EntryKind.ACTION, f"cancelled link {link.index}")

    # 4. observe

    def _observe(self, record: ChainRecord, predecessor: Link | None, snapshot: Snapshot) -> Observation:
        asked, request = self._guard.predictor, record.chain.link_request(record.next_index)
        outside = self._outside
        return Observation(
            time=snapshot.time,
            snapshot=snapshot,
            predecessor=snapshot.links.get(predecessor.tag) if predecessor else None,
            successor=request,
            waits=outside.waits.recent_waits(asked.wants_waits) if asked.wants_waits else _NO_WAITS,
            planned_start=self._planned_start(request) if asked.wants_plan else ABSENT,
        )

    def _planned_start(self, request: JobRequest) -> Seconds:
        try:
            return self._outside.estimator.estimate_start(request)
        except (ClusterUnavailable, SubmissionRejected):
            return ABSENT

    # 5. predict, 6. decide

    def _decide(self, record: ChainRecord, observation: Observation) -> Decision:
        if (decision := forced(observation)) is not None:
            return decision
        answer = self._guard.predict(observation)
        if answer.trouble:
            self._write(record, observation.time, EntryKind.TROUBLE, answer.trouble)
        return weigh(observation, answer.prediction, self._policy.rule)

    # 7. obtain a permit

    def _permit(self, record: ChainRecord, now: Seconds) -> Permit:
        links = [link for other in self._outside.store.load() for link in other.links]
        usage = Usage(
            live_links=sum(not link.final for link in links),
            submissions_last_hour=sum(link.planned > now - _HOUR for link in links),
            refusals=record.refusals,
            not_before=record.not_before,
        )
        return permit(now, usage, self._policy.limits)

    def _refrain(self, record: ChainRecord, granted: Permit, now: Seconds) -> Cycle:
        if granted.pause:
            record = machine.apply(record, PauseAsked(granted.reason), now)
            self._outside.store.save(record)
        text = f"hold: {granted.reason}"
        return self._explain(record, now, text, deciding=record.status is ChainStatus.ACTIVE)

    # 8. store the intent, submit

    def _send(self, record: ChainRecord, link: Link, now: Seconds) -> Cycle:
        """Submit a planned link. The intent is stored first: whatever happens next, the tag finds the job."""
        store = self._outside.store
        record = record.with_link(replace(link, planned=now))
        store.save(record)
        try:
            job_id = self._outside.actuator.submit(record.chain.link_request(link.index))
        except SubmissionRejected as error:
            pause = refusal_pause(record.refusals + 1, self._policy.limits)
            store.save(machine.apply(record, LinkRefused(link.index, str(error), pause), now))
            return self._trouble(record, now, f"link {link.index} was refused: {error}")
        except ClusterUnavailable as error:
            return self._trouble(record, now, f"link {link.index} may not have reached the cluster: {error}")
        store.save(machine.apply(record, LinkSubmitted(link.index, job_id, now), now))
        text = f"submitted link {link.index} as job {job_id}: {link.reason}"
        self._write(record, now, EntryKind.ACTION, text)
        return Cycle(text, NEVER, deciding=True)

    # 9. write it down

    def _explain(self, record: ChainRecord, now: Seconds, text: str, *, deciding: bool) -> Cycle:
        self._write(record, now, EntryKind.DECISION, text)
        return Cycle(text, self._wake(record, now), deciding)

    def _trouble(self, record: ChainRecord, now: Seconds, text: str) -> Cycle:
        self._write(record, now, EntryKind.TROUBLE, text)
        return Cycle(text, now + self._policy.settle, deciding=True)

    def _wake(self, record: ChainRecord, now: Seconds) -> Seconds:
        """The next instant at which something is due: the head's end, the end of a back-off or of a search."""
        due = [record.not_before, record.head.end if record.head else NEVER]
        due += [ln.planned + self._policy.settle for ln in record.links if ln.state is LinkState.PLANNED]
        return min((instant for instant in due if instant > now), default=NEVER)

    def _write(self, record: ChainRecord | None, now: Seconds, kind: EntryKind, text: str) -> None:
        self._outside.journal.write(Entry(now, record.chain.chain_id if record else None, kind, text))


_NO_WAITS = RecentWaits.none()


def _joined(cycles: list[Cycle]) -> Cycle:
    """One cycle out of those of each chain."""
    return Cycle(
        "; ".join(cycle.sentence for cycle in cycles) or "no chain needs attention",
        min((cycle.wake for cycle in cycles), default=NEVER),
        any(cycle.deciding for cycle in cycles),
    )
