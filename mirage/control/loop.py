"""The one loop, for every mode: live, replay, training. Read ``ControlLoop.cycle`` first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.control.commands import NoCommands
from mirage.control.hands import Hands, told
from mirage.control.judge import Judge
from mirage.control.observing import Observer
from mirage.control.permits import Permits
from mirage.control.questions import Foreteller
from mirage.control.status import Status
from mirage.domain.chain import ChainStatus, LinkState, Steering
from mirage.domain.command import AddChain, LiftProtection
from mirage.domain.decision import Hold
from mirage.domain.errors import ClusterUnavailable, MirageError
from mirage.domain.instants import spell_instant
from mirage.domain.job import NEVER
from mirage.domain.journal import EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.features.window import QueueWindows
from mirage.provisioner import handover, machine, requests, steering
from mirage.provisioner.decide import DecisionRule
from mirage.provisioner.events import PauseAsked, sightings
from mirage.provisioner.limits import Limits, Permit

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.guard import Guards
    from mirage.control.hands import Act
    from mirage.control.questions import Foresight, Question
    from mirage.domain.chain import ChainId, ChainRecord, Link
    from mirage.domain.command import Asked
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.ports import (
        Actuator,
        ChainStore,
        Clock,
        Cluster,
        Commands,
        Files,
        JobHistory,
        Journal,
        Standings,
        StartEstimator,
        Ticks,
        WaitHistory,
    )
    from mirage.provisioner.protection import Protection


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
    commands: Commands = field(default_factory=NoCommands)
    history: JobHistory | None = None
    standings: Standings | None = None
    windows: QueueWindows = field(default_factory=QueueWindows)
    """What is known of the queue's last day already."""


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
    """Keeps every stored chain supplied with links.

    Keeps no state of its own but the last snapshot and since when the cluster has answered; ``status`` shows the
    last cycle to other threads, and before the first one the chains as they are stored.
    """

    def __init__(self, outside: Outside, guards: Guards, policy: Policy) -> None:
        self._outside = outside
        self._guards = guards
        self._policy = policy
        self._observer = Observer(
            outside.waits, outside.estimator, outside.history, outside.standings, outside.windows
        )
        self._foreteller = Foreteller(self._observer)
        self._judge = Judge(self._observer, guards, policy.rule, outside.journal)
        self._permits = Permits(outside.store, policy.limits)
        self._hands = Hands(outside.actuator, outside.store, outside.journal, outside.files, self._permits)
        now = outside.clock.now()
        self._last = Snapshot.unseen(now)
        self._contact = now
        # The first look may hang, and people ask for their chains meanwhile.
        self.status = self._as_stored("no cycle yet")

    def stand_by(self, sentence: str) -> None:
        """Show the chains as they are stored, and why there is no cycle. Raises ``StoreUnavailable``."""
        self.status = self._as_stored(sentence)

    def _as_stored(self, sentence: str) -> Status:
        chains, protected = self._outside.store.load(), self._permits.protection()
        return Status(self._outside.clock.now(), sentence, self._last, chains, protection=protected)

    def run(self, ticks: Ticks, finished: Callable[[], bool] = lambda: False) -> None:
        """Cycle until ``ticks`` ends or ``finished()``."""
        cycle = self.cycle()
        while not finished() and ticks.wait(cycle.wake, cycle.deciding):
            cycle = self.cycle()

    def reconfigure(self, guards: Guards, policy: Policy) -> None:
        """Decide otherwise from the next cycle on; to be called between cycles."""
        self._guards, self._policy = guards, policy
        self._judge = replace(self._judge, guards=guards, rule=policy.rule)
        self._permits = replace(self._permits, limits=policy.limits)
        self._hands = replace(self._hands, permits=self._permits)

    def foresee(self, question: Question, alive: Callable[[], None]) -> Foresight:
        """What the predictors say of a job that nobody has submitted; to be called between cycles.

        Raises ``ClusterUnavailable``.
        """
        return self._foreteller.foresee(question, self._last, self._guards, alive)

    def cycle(self) -> Cycle:
        """Look once, then attend to each chain; returns the sentence that explains what was done.

        1. obey commands           4. make way, steer    7. decide
        2. freeze the world        5. observe            8. obtain a permit, store the intent, submit
        3. note what happened      6. predict            9. write it down

        5 to 7 are the ``Judge``'s. What goes wrong with one chain keeps no other from its turn; it is raised when
        all have had theirs.
        """
        now = self._outside.clock.now()
        self._obey(now)
        snapshot = self._freeze(now)
        attended, faults = self._attend_all(snapshot, now)
        cycle = _joined(list(attended.values()))
        explained = {chain_id: each.sentence for chain_id, each in attended.items()}
        chains, cycles, protected = self._outside.store.load(), self.status.cycles + 1, self._protected(now)
        self.status = Status(now, cycle.sentence, snapshot, chains, explained, cycles, protected)
        if faults:
            raise faults[0]
        return cycle

    def _attend_all(self, snapshot: Snapshot, now: Seconds) -> tuple[dict[ChainId, Cycle], list[Exception]]:
        """Every chain gets its turn, also after one that failed."""
        attended: dict[ChainId, Cycle] = {}
        faults: list[Exception] = []
        for record in self._outside.store.load():
            try:
                if record.over and not snapshot.stale:
                    self._hands.cancel_stock(record, snapshot.stock, now)
                if record.over and not record.live:
                    continue
                attended[record.chain.chain_id] = self._attend(record, snapshot, now)
            except Exception as fault:
                faults.append(fault)
                attended[record.chain.chain_id] = Cycle(f"hold: {fault}", NEVER, deciding=True)
        return attended, faults

    def _attend(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> Cycle:
        if snapshot.stale:
            text = f"hold: the cluster has not answered since {spell_instant(snapshot.stale_since)}"
            return self._explain(record, now, text, deciding=True)
        record = self._catch_up(record, snapshot, now)
        self._hands.cancel_leftovers(record, now)
        if unknown := [link.index for link in record.live if link.tag in snapshot.unaccounted]:
            text = f"hold: link {unknown[0]} has left the queue and accounting cannot tell how it ended"
            return self._explain(record, now, text, deciding=True)
        if not record.over:
            record = self._hands.make_way(record, now)
        match machine.need(record, now, self._policy.settle, self._contact):
            case machine.Rest(reason):
                return self._explain(record, now, reason, deciding=False)
            case machine.Resubmit(link) if now < self._permits.next_try():
                text = f"hold: link {link.index} was sent, the cluster does not show it; protected mode"
                return self._explain(record, now, text, deciding=True)
            case machine.Resubmit(link):
                behind = _job(record, record.head, snapshot) if record.chain.steering is not Steering.OFF else None
                return self._sent(self._hands.send(record, link, now, behind), now)
            case machine.Bid(predecessor):
                return self._plan(record, "held back until it is wanted", now, _job(record, predecessor, snapshot))
            case machine.Steer(link, predecessor):
                job, before = _job(record, link, snapshot), _job(record, predecessor, snapshot)
                assert job is not None, "a pending link is one that the snapshot shows"
                return self._steer(record, job, before, now)
            case machine.Successor(predecessor):
                return self._consider(record, predecessor, snapshot, now)

    def _consider(self, record: ChainRecord, predecessor: Link | None, snapshot: Snapshot, now: Seconds) -> Cycle:
        decision = self._judge.decide(record, _job(record, predecessor, snapshot), snapshot)
        if isinstance(decision, Hold):
            return Cycle(f"hold: {decision.reason}", self._wake(record, now), deciding=True)
        return self._plan(record, decision.reason, now)

    def _plan(self, record: ChainRecord, reason: str, now: Seconds, behind: Job | None = None) -> Cycle:
        granted = self._permits.obtain(record, now)
        if not granted.granted:
            return self._refrain(record, granted, now)
        record, link = machine.plan(record, reason, now)
        return self._sent(self._hands.send(record, link, now, behind), now)

    def _steer(self, record: ChainRecord, job: Job, predecessor: Job | None, now: Seconds) -> Cycle:
        """Hold the successor ``job`` back or let it go, where it is not as it should be."""
        is_back = steering.held_back(job, record.chain)
        back = steering.wanted_back(record.chain, predecessor, now)
        if back is not is_back:
            act = self._hands.steer(record, job, predecessor, now, back=back)
            return Cycle(act.text, self._wake(record, now), deciding=True)
        state = "held back" if is_back else "let go"
        return self._explain(record, now, f"job {job.job_id} is {state}", deciding=True)

    # 1. obey commands

    def _obey(self, now: Seconds) -> None:
        for asked in self._outside.commands.take():
            try:
                asked.answer.set_result(self._carry_out(asked, now))
            except MirageError as error:
                asked.answer.set_exception(error)

    def _carry_out(self, asked: Asked, now: Seconds) -> str:
        """Raises what the command deserves: ``UnknownChain``, ``ConfigError``, ``PluginNotFound``."""
        command = asked.command
        if isinstance(command, LiftProtection):
            return self._lift(command, now)
        if isinstance(command, AddChain):
            self._guards.of(command.chain.predictor)
        record, text = requests.obey(self._outside.store.load(), command, now), requests.sentence(command)
        self._outside.store.save(record, told(record, now, EntryKind.COMMAND, text))
        return text

    def _lift(self, command: LiftProtection, now: Seconds) -> str:
        for record in requests.forgiven(self._outside.store.load(), now):
            self._outside.store.save(record)
        text = requests.sentence(command)
        self._hands.write(None, now, EntryKind.COMMAND, text)
        return text

    # 2. freeze the world

    def _freeze(self, now: Seconds) -> Snapshot:
        """The snapshot of this cycle; when the cluster does not answer the last one, marked stale."""
        expected: dict[str, JobId] = {
            link.tag: link.job_id for record in self._outside.store.load() for link in record.live
        }
        last, wants = self._last, self._guards.wants
        try:
            self._last = self._outside.cluster.snapshot(queue=wants.queue or wants.window, expected=expected)
        except ClusterUnavailable as error:
            self._hands.write(None, now, EntryKind.TROUBLE, f"the cluster does not answer: {error}")
            self._last = last if last.stale else replace(last, stale_since=last.time)
        else:
            if last.stale:
                self._contact = now
            self._observer.seen(self._last, wants)
        return self._last

    # 3. note what happened

    def _catch_up(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> ChainRecord:
        """The record brought up to the snapshot, stored when it changed."""
        file = record.chain.done.file
        events = sightings(record, snapshot, bool(file) and self._outside.files.exists(file))
        if not events:
            return record
        known = len(record.handovers())
        record = machine.apply_all(record, events, now)
        entries = [told(record, now, EntryKind.EVENT, str(each), getattr(each, "index", 0)) for each in events]
        for link, outcome in record.handovers()[known:]:
            text = f"interruption {outcome.interruption} s, overlap {outcome.overlap} s"
            entry = told(record, now, EntryKind.OUTCOME, text, link.index)
            entries.append(replace(entry, outcome=outcome))
        self._outside.store.save(record, *entries)
        return record

    # 8. obtain a permit

    def _refrain(self, record: ChainRecord, granted: Permit, now: Seconds) -> Cycle:
        if granted.pause:
            record = machine.apply(record, PauseAsked(granted.reason), now)
            self._outside.store.save(record)
        text = f"hold: {granted.reason}"
        return self._explain(record, now, text, deciding=record.status is ChainStatus.ACTIVE)

    # 9. write it down

    def _protected(self, now: Seconds) -> Protection | None:
        """Whether protected mode is on after this cycle; said where that is new."""
        protected = self._permits.protection()
        if protected is not None and self.status.protection is None:
            text = f"protected mode: {protected}; but for a try now and then nothing is submitted"
            self._hands.write(None, now, EntryKind.TROUBLE, text)
        if protected is None and self.status.protection is not None:
            self._hands.write(None, now, EntryKind.EVENT, "protected mode is over")
        return protected

    def _explain(self, record: ChainRecord, now: Seconds, text: str, *, deciding: bool) -> Cycle:
        self._hands.write(record, now, EntryKind.DECISION, text)
        return Cycle(text, self._wake(record, now), deciding)

    def _sent(self, act: Act, now: Seconds) -> Cycle:
        return Cycle(act.text, NEVER if act.done else now + self._policy.settle, deciding=True)

    def _wake(self, record: ChainRecord, now: Seconds) -> Seconds:
        """The next instant at which something is due: the head's end, a back-off, a search, a hand-over."""
        end = record.head.end if record.head else NEVER
        due = [record.not_before, end, end - record.chain.lead, handover.next_instant(record, now)]
        due += [ln.planned + self._policy.settle for ln in record.links if ln.state is LinkState.PLANNED]
        return min((instant for instant in due if instant > now), default=NEVER)


def _job(record: ChainRecord, link: Link | None, snapshot: Snapshot) -> Job | None:
    return snapshot.link(link.tag, record.chain.owner) if link is not None else None


def _joined(cycles: list[Cycle]) -> Cycle:
    """One cycle out of those of each chain."""
    return Cycle(
        "; ".join(cycle.sentence for cycle in cycles) or "no chain needs attention",
        min((cycle.wake for cycle in cycles), default=NEVER),
        any(cycle.deciding for cycle in cycles),
    )
