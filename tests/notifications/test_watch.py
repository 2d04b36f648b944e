"""What is worth a message: each event one time, and nothing that a user has just asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.forecasts import ForecastLedger
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryStore
from mirage.domain.chain import ChainId, ChainRecord, DoneCondition
from mirage.domain.command import CancelChain, LiftProtection, PauseChain
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState
from mirage.domain.journal import Notice, NoticeKind
from mirage.notifications.rules import NotificationRules, Thresholds
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits

if TYPE_CHECKING:
    from mirage.domain.journal import Entry


class Site:
    """A loop that is watched."""

    def __init__(self, fate: Fate, *chains, predictor: str = "reactive", **cluster) -> None:
        self.fate = fate
        self.cluster = FakeCluster(lambda request: self.fate, **cluster)
        self.store = MemoryStore(*(ChainRecord(each) for each in chains or [chain()]), journal=self)
        self.predictor = predictor
        self.notices: list[Notice] = []
        self.restart()

    def restart(self) -> None:
        c, self.commands, self.ledger = self.cluster, CommandQueue(), ForecastLedger()
        outside = LoopDependencies(c, c, c, c, c, self.store, self, c, self.commands)
        guard = PredictorGuard(build_predictor(self.predictor), build_predictor("reactive"))
        self.loop = ControlLoop(outside, Guards(guard), LoopSettings(limits=Limits(protect_after=2)))
        self.watch = NotificationRules(self.loop.status, Thresholds(), self.ledger)

    def write(self, entry: Entry) -> None:
        self.ledger.hear(entry)
        self.watch.hear(entry)

    def run(self, seconds: int, step: int = 5 * MIN) -> list[Notice]:
        """The messages sent meanwhile, except those about submissions."""
        told, until = list[Notice](), self.cluster.time + seconds
        while self.cluster.time < until:
            self.cluster.advance(self.cluster.time + step)
            self.loop.cycle()
            told += self.watch.seen(self.loop.status)
            list(self.ledger.settle(self.loop.status.chains))
        self.notices += told
        return [notice for notice in told if notice.kind is not NoticeKind.SUBMITTED]


def test_each_submission_is_told_once() -> None:
    site = Site(Fate(), chain(2 * HOUR, done=DoneCondition(links=3)))
    site.run(9 * HOUR)
    told = [notice for notice in site.notices if notice.kind is NoticeKind.SUBMITTED]
    assert [(notice.link, notice.owner) for notice in told] == [(1, "alice"), (2, "alice"), (3, "alice")]
    assert [notice.kind for notice in site.notices if notice not in told] == [NoticeKind.DONE]


def test_a_gap_is_told_when_it_is_too_long_and_when_it_is_over() -> None:
    site = Site(Fate(wait=2 * HOUR), chain(4 * HOUR, done=DoneCondition(links=2)))
    assert site.run(6 * HOUR) == []
    (down,) = site.run(HOUR)
    assert (down.kind, down.over, down.link) == (NoticeKind.GAP, False, 1)
    assert site.run(30 * MIN) == []
    (up,) = site.run(HOUR)
    assert (up.kind, up.over) == (NoticeKind.GAP, True)
    assert up.text == "a link runs again after an interruption of 2.0 h"


def test_a_gap_that_nobody_saw_is_told_afterwards() -> None:
    site = Site(Fate(wait=20 * MIN), chain(4 * HOUR, done=DoneCondition(links=2)), predictor="fixed:5m")
    assert site.run(4 * HOUR + 20 * MIN) == []
    (told,) = site.run(HOUR, step=HOUR)
    assert (told.kind, told.over, told.link) == (NoticeKind.GAP, True, 1)


def test_a_chain_that_stops_by_itself_is_stuck_and_one_that_was_cancelled_is_not() -> None:
    failing = FailurePolicies(FailurePolicy(FailureAction.STOP))
    fate = Fate(runtime=HOUR, state=JobState.FAILED, exit_code=1)
    site = Site(fate, chain(failures=failing), chain(failures=failing, name="other"))
    site.run(30 * MIN)
    site.commands.put(CancelChain(ChainId("other"), "alice"))
    (told,) = site.run(2 * HOUR)
    assert (told.kind, told.chain) == (NoticeKind.STUCK, "svc")
    assert "the chain was stopped by Mirage: link 1 failed (exit)" in told.text


def test_who_pauses_a_chain_is_not_told_that_it_is_paused() -> None:
    site = Site(Fate())
    site.run(30 * MIN)
    site.commands.put(PauseChain(ChainId("svc"), "alice"))
    assert site.run(HOUR) == []


def test_one_word_a_chain_and_day_about_a_link_that_waits_beyond_all_that_was_foreseen() -> None:
    site = Site(Fate(), chain(4 * HOUR), predictor="average", waits=[HOUR] * 5)
    site.run(30 * MIN)
    site.fate = Fate(wait=60 * HOUR)
    told = [notice for notice in site.run(50 * HOUR) if notice.kind is NoticeKind.STUCK]
    assert [notice.text.split(" for ")[0] for notice in told] == ["link 2 has waited"] * 2
    assert 24 * HOUR <= told[1].time - told[0].time <= 25 * HOUR


def test_an_outage_is_told_once_and_its_end() -> None:
    site = Site(Fate())
    site.run(30 * MIN)
    site.cluster.down = True
    (away,) = site.run(3 * HOUR)
    assert (away.kind, away.over, away.chain) == (NoticeKind.UNREACHABLE, False, "")
    site.cluster.down = False
    (back,) = site.run(HOUR)
    assert (back.kind, back.over) == (NoticeKind.UNREACHABLE, True)


def test_protected_mode_is_told_on_and_off() -> None:
    on = FailurePolicy(FailureAction.CONTINUE)
    chains = [
        replace(chain(2 * HOUR, failures=FailurePolicies(on, on, on), name=name), owner=name) for name in "abc"
    ]
    site = Site(Fate(), *chains)
    site.run(HOUR)
    site.cluster.refuse = "down"
    told = site.run(2 * HOUR)
    assert [notice.over for notice in told if notice.kind is NoticeKind.PROTECTED] == [False]
    site.restart()
    assert not [notice for notice in site.run(10 * MIN) if notice.kind is NoticeKind.PROTECTED], "known"
    site.cluster.refuse = ""
    site.commands.put(LiftProtection("root"))
    assert [n.over for n in site.run(HOUR) if n.kind is NoticeKind.PROTECTED] == [True]


@pytest.mark.parametrize("kind", [NoticeKind.SUBMITTED, NoticeKind.DONE])
def test_a_restart_tells_nothing_twice(kind: NoticeKind) -> None:
    site = Site(Fate(), chain(2 * HOUR, done=DoneCondition(links=2)))
    for _ in range(12):
        site.run(30 * MIN)
        site.restart()
    told = [notice for notice in site.notices if notice.kind is kind]
    assert len(told) == {NoticeKind.SUBMITTED: 2, NoticeKind.DONE: 1}[kind]


def test_the_owner_is_asked_once_for_more_held_links() -> None:
    site = Site(Fate())
    site.run(30 * MIN)
    status = replace(site.loop.status, snapshot=replace(site.loop.status.snapshot, stock=()))
    (asked,) = site.watch.seen(status)
    assert (asked.kind, asked.chain) == (NoticeKind.STUCK, "svc")
    assert "--held-links" in asked.text
    assert site.watch.seen(replace(status, time=status.time + HOUR)) == []


def test_week_is_summed_up_as_it_ends_also_by_a_daemon_started_within_it() -> None:
    """Time begins on a Thursday; links of four hours start each sixth hour, and from the eighth on take over."""
    site = Site(Fate(wait=2 * HOUR), chain(4 * HOUR, done=DoneCondition(links=100)))
    site.run(50 * HOUR)
    site.restart()
    told = [each for each in site.run(9 * 24 * HOUR) if each.kind is NoticeKind.WEEK]
    assert [each.time for each in told] == [4 * 24 * HOUR, 11 * 24 * HOUR]
    first, second = (each.text for each in told)
    assert first.startswith("15 handovers in the last week, interruption 30.0 h; ")
    assert second.startswith("28 handovers in the last week, interruption 56.0 h; ")
    assert "about 0 more (an estimate: 0 to 0)" in first
    assert {(each.chain, each.owner, each.over) for each in told} == {("svc", "alice", False)}


def test_week_without_hand_over_is_no_news() -> None:
    site = Site(Fate(), chain(24 * HOUR * 30))
    assert site.run(12 * 24 * HOUR, step=HOUR) == []
