"""The one loop, for every mode: live, replay, training. Read ``ControlLoop.cycle`` first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.control.actions import ActionExecutor, journal_entry
from mirage.control.calm import QueueReads, held_surely, is_calm
from mirage.control.clockcheck import ClockWatch
from mirage.control.commands import CommandApplier
from mirage.control.decider import Appraiser, Decider
from mirage.control.filewatch import RECHECK, FileWatch
from mirage.control.observations import ObservationBuilder
from mirage.control.permits import Permits, Turns, next_due
from mirage.control.prediction_requests import PredictionService
from mirage.control.restored import RestoredChains
from mirage.control.startplans import Pins, ScriptedEstimator
from mirage.control.status import ChainFault, Cycle, Status, faultless, joined
from mirage.control.stores import ChangedEntries, CountedChains
from mirage.domain.bounds import format_instant
from mirage.domain.chain import ChainStatus, Steering
from mirage.domain.decision import Defer
from mirage.domain.errors import ClusterUnavailable, StoreUnavailable
from mirage.domain.job import NEVER
from mirage.domain.journal import EntryKind
from mirage.domain.link import LinkState
from mirage.domain.snapshot import Snapshot
from mirage.domain.tags import HeldJobs
from mirage.provisioner import heldlinks, machine, pending, rejections, steering
from mirage.provisioner import identities as rivals
from mirage.provisioner.events import link_events
from mirage.provisioner.identities import TaggedJobs, as_seen, expected_jobs, identities

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.actions import Act
    from mirage.control.dependencies import LoopDependencies, LoopSettings
    from mirage.control.guard import Guards
    from mirage.control.prediction_requests import PredictionRequest, PredictionResult
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Job, Seconds
    from mirage.domain.link import Link
    from mirage.ports import Ticks
    from mirage.provisioner.limits import Permit

_ANEW: Seconds = 5
"""Minimum time between two decisions of a chain, s: its wait may shrink as fast as the time left."""


class ControlLoop:
    """Keep every stored chain supplied with links.

    The only state in memory is the last snapshot and the time since which the cluster answers. ``status`` shows
    other threads the last cycle, and before the first one the stored chains.
    """

    def __init__(self, outside: LoopDependencies, guards: Guards, policy: LoopSettings) -> None:
        self._outside = outside
        self._guards = guards
        self._policy = policy
        estimator = ScriptedEstimator(outside.estimator, outside.store)
        self._observer = ObservationBuilder(
            outside.waits, estimator, outside.history, outside.standings, outside.windows, policy.plans
        )
        self._foreteller = PredictionService(self._observer)
        self._journal = ChangedEntries(outside.journal)
        self._judge = Decider(self._observer, guards, policy.rule, self._journal, policy.between_polls)
        self._pins = Pins(outside.sharing)
        self._turns = Turns(policy.decision_seconds)
        now = outside.clock.now()
        self._chains = CountedChains(outside.store, now)
        self._applier = CommandApplier(
            outside.commands, self._chains, self._journal, guards, policy.quotas, self._publish
        )
        self._permits = Permits(self._chains, policy.limits)
        self._files = FileWatch(outside.files, self._journal)
        self._clocks = ClockWatch(self._journal, policy.clock_slack)
        self._hands = ActionExecutor(
            outside.actuator, self._chains, self._journal, self._files, self._permits, self._pins
        )
        self._appraiser = Appraiser(self._observer, guards, self._journal)
        self._restored = RestoredChains(outside.restored, self._chains)
        self._last = Snapshot.unseen(now)
        self._held: HeldJobs | None = None
        self._contact: Seconds = 0
        self._reads = QueueReads()
        self._cycle = Cycle("", NEVER, deciding=True)
        # The first poll may hang, and users list their chains meanwhile.
        self.status = self._as_stored("no cycle yet")

    def stand_by(self, sentence: str) -> None:
        """Show the stored chains and why there is no cycle. Raises ``StoreUnavailable``."""
        self.status = self._as_stored(sentence).explaining_all()

    def _as_stored(self, sentence: str) -> Status:
        now = self._outside.clock.now()
        self._chains.recount(now)
        protected = self._permits.protection()
        return Status(now, sentence, self._last, self._chains.load(), protection=protected, asked=False)

    def _publish(self) -> None:
        self._reads.hurry()
        self.status = self.status.having(self._chains.load())

    def run(self, ticks: Ticks, finished: Callable[[], bool] = lambda: False) -> None:
        """Cycle until ``ticks`` ends or ``finished()``; for replays, where an error of one chain ends the run."""
        cycle = faultless(self.cycle())
        while not finished() and ticks.wait(cycle.wake, cycle.deciding):
            cycle = faultless(self.cycle())

    def reconfigure(self, guards: Guards, policy: LoopSettings) -> None:
        """Use other predictors and settings from the next cycle on; to be called between cycles."""
        self._guards, self._policy = guards, policy
        self._reads.hurry()
        self._turns = Turns(policy.decision_seconds)
        self._judge = replace(self._judge, guards=guards, rule=policy.rule, between_polls=policy.between_polls)
        self._applier = replace(self._applier, guards=guards, quotas=policy.quotas)
        self._permits = Permits(self._chains, policy.limits)
        self._hands = replace(self._hands, permits=self._permits)
        self._appraiser = replace(self._appraiser, guards=guards)

    def foresee(self, question: PredictionRequest, alive: Callable[[], None]) -> PredictionResult:
        """Return the predictions for a job that is not submitted; to be called between cycles.

        Raises ``ClusterUnavailable``.
        """
        self.status.check_asked()
        return self._foreteller.foresee(question, self._last, self._guards, alive)

    def cycle(self) -> Cycle:
        """Poll once, then process each chain; return the cycle with the reason of what it did.

        1. apply commands          4. handovers, releases   7. decide
        2. take the snapshot       5. observe               8. obtain a permit, store the intent, submit
        3. note what happened      6. predict               9. write the journal

        Steps 5 to 7 belong to ``Decider``. An error in one chain or command ends only that chain's turn. A
        database that does not answer concerns all chains: the error is raised after all of them had their turn.
        """
        now = self._outside.clock.now()
        self._journal.begin_cycle()
        self._turns.begin_cycle()
        self._chains.recount(now)
        faults = self._applier.apply_first(now)
        snapshot = self._freeze(now)
        self._files.refresh(self._chains.load(), snapshot, now)
        attended, unsaved = self._attend_all(snapshot, now)
        self._restored.finish()
        later, wake = self._applier.apply_more(now)
        cycle = joined(list(attended.values()), [*faults, *later])
        cycle = replace(cycle, wake=min(cycle.wake, wake))
        explained = {chain_id: each.sentence for chain_id, each in attended.items()}
        chains, cycles, protected = self._chains.load(), self.status.cycles + 1, self._permits.protection()
        self._hands.tell_protection(self.status.protection, protected, now)
        files, decided = self._files.unknown, self._turns.decided
        status = Status(now, cycle.sentence, snapshot, chains, explained, cycles, protected, files, decided)
        self.status = replace(status, unready=self._files.unready)
        self._cycle = cycle
        if unsaved:
            raise unsaved[0]
        return cycle

    def _attend_all(self, snapshot: Snapshot, now: Seconds) -> tuple[dict[ChainId, Cycle], list[StoreUnavailable]]:
        """Process every chain, also after one that failed; return the cycles and the errors of the database."""
        attended: dict[ChainId, Cycle] = {}
        unsaved: list[StoreUnavailable] = []
        tagged = TaggedJobs(snapshot)
        for record, granted in self._turns.attend(self._chains.load()):
            chain_id = record.chain.chain_id
            if not granted:
                if record.live or not record.over:
                    attended[chain_id] = self._left_out(record, now)
                continue
            try:
                record = self._hands.correct(record, now)  # noqa: PLW2901 - the former record is wrong
                if record.over and not snapshot.stale and self._held is not None:
                    self._hands.cancel_stock(record, self._held.of(record.chain), now)
                if record.over and not record.live:
                    if not snapshot.stale:
                        self._hands.cancel_returned(record, tagged.returned_to(record), now)
                    self._hands.drop_script(record)
                    continue
                attended[chain_id] = self._attend(record, snapshot, tagged, now)
            except StoreUnavailable as error:
                unsaved.append(error)
                attended[chain_id] = Cycle(f"hold: {error}", NEVER, deciding=True)
            except Exception as error:
                attended[chain_id] = self._failed(record, ChainFault(chain_id, error), now)
        return attended, unsaved

    def _left_out(self, record: ChainRecord, now: Seconds) -> Cycle:
        self._journal.skip(record.chain.chain_id)
        owner = record.chain.owner
        sentence = f"hold: decided in a later cycle; other chains of {owner} used this cycle's decision time"
        return Cycle(sentence, next_due(record, now, self._policy.settle), deciding=True, forecast=True)

    def _failed(self, record: ChainRecord, fault: ChainFault, now: Seconds) -> Cycle:
        """Return the cycle of a chain whose turn failed; the journal has the error once."""
        self._hands.write(record, now, EntryKind.TROUBLE, fault.text)
        return Cycle(f"hold: {fault.text}", NEVER, deciding=True, faults=(fault,))

    def _attend(self, record: ChainRecord, snapshot: Snapshot, tagged: TaggedJobs, now: Seconds) -> Cycle:
        if snapshot.stale:
            text = f"hold: the cluster has not answered since {format_instant(snapshot.stale_since)}"
            return self._explain(record, now, text, deciding=True)
        record, waits = self._restored.bring_up(record, snapshot, now)
        if waits:
            return self._explain(record, now, f"hold: {waits}", deciding=True)
        record = self._catch_up(record, snapshot, now)
        stays = self._hands.cancel_leftovers(record, now)
        self._hands.cancel_returned(record, returned := tagged.returned_to(record), now)
        record = self._hands.face(record, tagged.unknown_to(record), now, released=self._held is not None)
        if text := rivals.unsettled(record, snapshot, returned):
            return self._explain(record, now, f"hold: {text}", deciding=True)
        if not record.over:
            record = self._hands.make_way(record, _job(record, record.waiting, snapshot), now)
        cycle = self._supply(record, snapshot, now)
        if few := heldlinks.shortage(record, self._held):
            self._hands.write(record, now, EntryKind.TROUBLE, few)
        stopped = pending.suspended(_job(record, record.head, snapshot))
        unusual = [text for text in (stays, stopped, few, self._clocks.text) if text]
        return replace(cycle, sentence="; ".join([cycle.sentence, *unusual]), calm=cycle.calm and not unusual)

    def _supply(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> Cycle:
        match machine.need(record, now, self._policy.settle, self._contact):
            case machine.SubmitHeld() | machine.Successor() if not heldlinks.has_next(record, self._held):
                text = f"hold: link {record.next_index} has no held job to release"
                return self._explain(record, now, text, deciding=True)
            case machine.NoAction(reason, because):
                link = record.waiting
                if link is not None and link.state is LinkState.PLANNED:
                    because = self._hands.doubts.get(link.tag, "")
                text = pending.resting(reason, because, _job(record, link, snapshot))
                return self._calmly(record, now, text, deciding=False)
            case machine.Resubmit(link) if now < self._permits.next_try():
                text = f"hold: Slurm does not show link {link.index}, which was submitted; protected mode"
                return self._explain(record, now, text, deciding=True)
            case machine.Resubmit(link):
                return self._resubmit(record, link, snapshot, now)
            case machine.SubmitHeld(predecessor):
                return self._bid(record, predecessor, snapshot, now)
            case machine.Steer(link, predecessor):
                job, before = _job(record, link, snapshot), _job(record, predecessor, snapshot)
                assert job is not None, "a pending link is one that the snapshot shows"
                cycle = self._steer(record, job, before, now)
                paused = "" if record.status is ChainStatus.ACTIVE else f"{machine.status_text(record)}; "
                return replace(cycle, sentence=f"{paused}{cycle.sentence}")
            case machine.Successor(predecessor):
                return self._consider(record, predecessor, snapshot, now)

    def _consider(
        self, record: ChainRecord, predecessor: Link | None, snapshot: Snapshot, now: Seconds, loose: str = ""
    ) -> Cycle:
        """Submit when the predictor says so; ``loose``: why the link cannot be pinned."""
        decision = self._judge.decide(record, _job(record, predecessor, snapshot), snapshot)
        instead = f"; it cannot be pinned: {loose}" if loose else ""
        if isinstance(decision, Defer):
            sentence = f"hold: {decision.reason}{instead}"
            due = min(next_due(record, now, self._policy.settle), max(decision.until, now + _ANEW))
            calm = decision.until != NEVER and is_calm(record, now, due)
            return Cycle(sentence, due, deciding=True, calm=calm, forecast=True)
        return self._plan(record, f"{decision.reason}{instead}", now, unpinned=bool(loose))

    def _bid(self, record: ChainRecord, predecessor: Link, snapshot: Snapshot, now: Seconds) -> Cycle:
        """Submit the successor held; if it cannot be pinned, with a dependency, or when the predictor says so."""
        job = _job(record, predecessor, snapshot)
        loose = self._pins.why_not(record, predecessor, job, released=self._held is not None)
        loose = loose or heldlinks.why_unbound(record, self._held)
        if not loose:
            return self._plan(record, steering.spoken(record.chain, predecessor.index), now, job)
        if record.chain.one_writer:
            reason = f"it waits for the end of link {predecessor.index}; it cannot be pinned: {loose}"
            return self._plan(record, reason, now, unpinned=True)
        return self._consider(record, predecessor, snapshot, now, loose)

    def _resubmit(self, record: ChainRecord, link: Link, snapshot: Snapshot, now: Seconds) -> Cycle:
        if doubt := rivals.in_doubt(record, link):
            return self._explain(self._hands.pause(record, doubt, now), now, doubt, deciding=False)
        behind = record.head if record.chain.method is not Steering.OFF and not link.unpinned else None
        job, released = _job(record, behind, snapshot), self._held is not None
        if behind is not None and self._pins.why_not(record, behind, job, released=released):
            link, job = replace(link, unpinned=True), None
        return self._sent(self._hands.send(replace(record, resent=link.index), link, now, job), now)

    def _plan(
        self, record: ChainRecord, reason: str, now: Seconds, behind: Job | None = None, *, unpinned: bool = False
    ) -> Cycle:
        if awaited := self._files.awaited(record):
            return replace(self._explain(record, now, f"hold: {awaited}", deciding=True), wake=now + RECHECK)
        granted = self._permits.obtain(record, now)
        if not granted.granted:
            return self._refrain(record, granted, now)
        record, link = machine.plan(record, reason, now)
        # Mirage releases only what it has held: other required nodes are those that the owner names.
        unpinned = unpinned or (behind is None and record.chain.method is not Steering.OFF)
        return self._sent(self._hands.send(record, replace(link, unpinned=unpinned), now, behind), now)

    def _steer(self, record: ChainRecord, job: Job, predecessor: Job | None, now: Seconds) -> Cycle:
        """Hold or release the successor ``job`` if it is not in the required state."""
        if pending.held_by_admin(job):
            text = pending.with_reason(f"job {job.job_id} waits until it is released", job)
            return self._explain(record, now, text, deciding=True)
        if pending.has_nodes(job):
            return self._explain(record, now, f"the nodes of job {job.job_id} are not ready yet", deciding=True)
        is_back = steering.held_back(job, record.chain)
        back = steering.wanted_back(job, record, predecessor, now)
        if back is not is_back:
            act = self._hands.steer(record, job, predecessor, now, back=back)
            return Cycle(act.text, next_due(record, now, self._policy.settle), deciding=True)
        self._hands.attempts.pop(job.job_id, None)
        pinned = record.chain.method is Steering.PIN
        held = "is bound to its predecessor's nodes" if pinned else "is held"
        text = f"job {job.job_id} {held if is_back else 'waits in the queue'}"
        ours = record.chain.method is Steering.HOLD
        reason = pending.with_reason(text, job) if ours else pending.resting(text, "", job)
        return self._calmly(record, now, reason, deciding=True, bound=held_surely(record, held=is_back))

    # 2. take the snapshot

    def _freeze(self, now: Seconds) -> Snapshot:
        """Return the snapshot of this cycle; if the cluster does not answer, the last one, marked stale."""
        records = self._chains.load()
        expected, known = expected_jobs(records), identities(records, released=self._held is not None)
        last, wants = self._last, self._guards.wants
        age = self._policy.queue_age
        queue = (wants.queue or wants.window or age > 0) and self._reads.due(age, self._cycle, now)
        self.status = self.status.asking()
        try:
            self._last = self._outside.cluster.snapshot(queue=queue, expected=expected, identities=known)
        except ClusterUnavailable as error:
            self._hands.write(None, now, EntryKind.TROUBLE, f"the cluster does not answer: {error}")
            self._last = last if last.stale else replace(last, stale_since=last.time)
            self._contact = NEVER
            self._reads.failed()
        else:
            self._contact = min(self._contact, now)
            self._held = None if self._last.stock is None else HeldJobs(self._last.stock)
            self._reads.done(now, whole=queue)
            self._observer.seen(self._last, replace(wants, window=wants.window and queue))
            self._clocks.compare(self._last, records, self._outside.clock.now())
        return self._last

    # 3. note what happened

    def _catch_up(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> ChainRecord:
        """Return the record updated from the snapshot; store it if it changed."""
        events = link_events(record, snapshot, self._files.done(record))
        before, known = record, len(record.handovers())
        record = as_seen(machine.apply_all(record, events, now), snapshot)
        record = self._files.with_cause(before, record)
        if self._policy.appraise:
            record = self._appraiser.appraise(record, snapshot, self._policy.appraise)
        if record is before:
            return record
        entries = [
            journal_entry(record, now, EntryKind.EVENT, str(each), getattr(each, "index", 0)) for each in events
        ]
        for link, outcome in record.handovers()[known:]:
            text = f"interruption {outcome.interruption} s, overlap {outcome.overlap} s"
            text += f", about {outcome.saved.p50} s saved" if outcome.saved is not None else ""
            entry = journal_entry(record, now, EntryKind.OUTCOME, text, link.index)
            entries.append(replace(entry, outcome=outcome))
        self._chains.save(record, *entries)
        return record

    # 8. obtain a permit

    def _refrain(self, record: ChainRecord, granted: Permit, now: Seconds) -> Cycle:
        reasons = filter(None, (rejections.rejection_text(record), granted.reason))
        return self._explain(record, now, f"hold: {'; '.join(reasons)}", deciding=True)

    # 9. write the journal

    def _explain(self, record: ChainRecord, now: Seconds, text: str, *, deciding: bool) -> Cycle:
        self._hands.write(record, now, EntryKind.DECISION, text)
        return Cycle(text, next_due(record, now, self._policy.settle), deciding)

    def _calmly(
        self, record: ChainRecord, now: Seconds, text: str, *, deciding: bool, bound: bool = False
    ) -> Cycle:
        cycle = self._explain(record, now, text, deciding=deciding)
        return replace(cycle, calm=is_calm(record, now, cycle.wake, bound=bound))

    def _sent(self, act: Act, now: Seconds) -> Cycle:
        return Cycle(act.text, NEVER if act.done else now + self._policy.settle, deciding=True)


def _job(record: ChainRecord, link: Link | None, snapshot: Snapshot) -> Job | None:
    return snapshot.link(link.tag, record.chain.owner) if link is not None else None
