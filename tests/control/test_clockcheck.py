"""A daemon whose clock was set wrong, or right, and a controller whose clock is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from hypothesis import given
from hypothesis import strategies as st
from loops import Service

from mirage.control.clockcheck import ClockCheck
from mirage.control.clocks import CorrectedClock
from mirage.domain.chain import DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.job import WarnSignal

LIMIT = 20 * MIN
START = 100 * HOUR


@dataclass
class Off:
    """A clock that differs from the cluster's."""

    cluster: FakeCluster
    by: int = 0
    rate: float = 1.0

    def now(self) -> int:
        return self.cluster.now() + self.by


class Site(Service):
    """A loop on a machine whose clock may be set; its snapshots are as of that clock."""

    def __init__(self, policy: HandoverPolicy, *, checks: bool) -> None:
        cluster = FakeCluster(lambda request: Fate(wait=0), time=START)
        self.machine = Off(cluster)
        self.clock = corrected = CorrectedClock(self.machine)
        self.check = ClockCheck(corrected, cluster.now, monotonic=cluster.now) if checks else None
        seen = cluster.snapshot
        cluster.snapshot = lambda **asked: replace(seen(**asked), time=corrected.now())  # type: ignore[method-assign]
        handover = HandoverSettings(policy, WarnSignal("TERM", MIN), max_overlap=2 * MIN)
        super().__init__(cluster, "reactive", chain_=chain(LIMIT, DoneCondition(links=99), handover=handover))

    def play(self, minutes: int, *, jumped: bool = False) -> None:
        for minute in range(minutes):
            if self.check is not None:
                self.check.check(jumped=jumped and not minute)
            self.cycle(self.cluster.time + MIN)


@pytest.mark.parametrize("policy", [HandoverPolicy.ON_START, HandoverPolicy.OVERLAP])
@pytest.mark.parametrize("by", [40 * MIN, 50 * HOUR, -40 * MIN])
def test_links_live_to_their_limits_whatever_the_machines_clock_says(by: int, policy: HandoverPolicy) -> None:
    right, wrong, checked = (Site(policy, checks=checks) for checks in (False, False, True))
    for site in (right, wrong, checked):
        site.play(30)
        site.machine.by = 0 if site is right else by
        site.play(4 * 60, jumped=True)
    assert len(checked.record.links) <= len(right.record.links) + 1
    runs = [job.end - job.start for job in checked.cluster.jobs.values() if job.state.finished]
    assert min(runs) >= LIMIT - 2 * MIN
    if by > 0:
        assert len(wrong.record.links) > len(right.record.links) + 5, "what the check is there for"
    checked.machine.by = 0
    checked.play(4 * 60, jumped=True)
    assert checked.clock.now() == checked.cluster.now()
    assert len(checked.record.links) <= len(right.record.links) * 2 + 2


@given(st.integers(-(10**6), 10**6), st.integers(0, 300), st.integers(0, 120))
def test_the_clock_is_right_to_within_what_is_let_be(by: int, took: int, slack: int) -> None:
    true = [10**9]

    class Machine:
        rate = 1.0

        def now(self) -> int:
            return true[0] + by

    def ask() -> int:
        told = true[0] + took // 2
        true[0] += took
        return told

    clock = CorrectedClock(Machine())
    check = ClockCheck(clock, ask, slack)
    corrected = check.check()
    assert abs(clock.now() - true[0]) <= slack + took
    assert bool(corrected) <= (abs(by) > slack), "a clock that is right is let be, however long the answer takes"


def test_the_controller_is_asked_now_and_then_and_once_the_clock_was_set() -> None:
    now, asked, answers = [0.0], [], [True]
    clock = CorrectedClock(Off(FakeCluster(time=START)))

    def ask() -> int:
        asked.append(now[0])
        if not answers[0]:
            raise ClusterUnavailable("sdiag: no answer")
        return START

    check = ClockCheck(clock, ask, monotonic=lambda: now[0])
    for second in range(0, 1_300, 10):
        now[0] = second
        check.check(jumped=second == 330)
    assert asked == [0, 330, 930]
    answers[0] = False
    for second in range(1_500, 1_700, 10):
        now[0] = second
        check.check()
    assert asked[3:] == [1_530, 1_590, 1_650], "one that does not answer costs no cycle much"
    assert clock.now() == START
