"""The gateway's request queue: each request gets exactly one result, whatever units and senders do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from serving_world import ABLE, FirstCome, make_desk

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.request_queue import ArrivedRequest, BadDispatch, RequestQueue, Start
from mirage.allocation.inference.serving.seating import Estimates
from mirage.domain.inference import Dispatch

UNITS = 4


def wish(model: int = 0, deadline: float = math.inf, tenant: int = 0) -> ArrivedRequest:
    return ArrivedRequest(model, tenant, deadline, 1.0)


def dispatch(desk: RequestQueue, now: float = 0.0) -> list[Start]:
    return desk.obey(FirstCome().decide(desk.view(now)), now)


def up(desk: RequestQueue, *units: int) -> RequestQueue:
    for unit in units or range(UNITS):
        desk.raise_unit(unit)
    return desk


def test_desk_full_of_one_tenant_still_takes_another() -> None:
    desk = make_desk(most=4)
    numbers = [desk.admit(wish(tenant=0), 0.0) for _ in range(4)]
    assert desk.make_room(wish(tenant=0)) is None
    assert desk.make_room(wish(tenant=1)) == numbers[3], "its newest gives way"
    desk.admit(wish(tenant=1), 0.0)
    assert desk.make_room(wish(tenant=1)) == numbers[2]
    desk.admit(wish(tenant=1), 0.0)
    assert desk.make_room(wish(tenant=1)) is None, "both have as many"
    assert desk.waiting == 4
    desk.check()


class DeskMachine(RuleBasedStateMachine):
    """Senders, units and the clock at random; a plain account of every request next to it."""

    def __init__(self) -> None:
        super().__init__()
        self.desk, self.now = make_desk(), 0.0
        self.up: set[int] = set()
        self.admitted: set[int] = set()
        self.model: dict[int, int] = {}
        self.running: dict[int, int] = {}
        self.doors: dict[int, str] = {}
        self.crashes: dict[int, int] = {}
        self.begun: set[int] = set()
        self.gone: set[int] = set()

    def leave(self, request: int, door: str) -> None:
        assert request not in self.doors, "a request has left twice"
        self.doors[request] = door

    @rule(model=st.integers(0, 2), tenant=st.integers(0, 1), slack=st.sampled_from([0.0, 1.0, 40.0, math.inf]))
    def ask(self, model: int, tenant: int, slack: float) -> None:
        waiting = self.desk.waiting
        try:
            number = self.desk.admit(ArrivedRequest(model, tenant, self.now + slack, 1.0), self.now)
        except RequestRefused as refusal:
            self.refused(refusal, waiting)
            return
        assert number not in self.admitted
        self.admitted.add(number)
        self.model[number] = model

    def refused(self, refusal: RequestRefused, waiting: int) -> None:
        assert refusal.status == 503
        assert refusal.retry_after is not None
        assert refusal.retry_after >= 1
        assert self.desk.waiting == waiting

    @rule()
    def decide(self) -> None:
        for start in dispatch(self.desk, self.now):
            assert start.unit in self.up
            assert start.unit not in self.running
            assert ABLE[self.model[start.request], start.unit // 2]
            self.running[start.unit] = start.request

    @rule(unit=st.integers(0, UNITS - 1))
    def answer(self, unit: int) -> None:
        if unit in self.running:
            request = self.running.pop(unit)
            kept = self.desk.answered(unit, self.now)
            if request in self.gone:
                assert not kept
            else:
                self.leave(request, "answered")

    @rule(unit=st.integers(0, UNITS - 1))
    def begin_to_answer(self, unit: int) -> None:
        if unit in self.running:
            self.desk.begun(self.running[unit], self.now)
            self.begun.add(self.running[unit])

    @rule(unit=st.integers(0, UNITS - 1))
    def come(self, unit: int) -> None:
        if unit not in self.up:
            self.up.add(unit)
            self.desk.raise_unit(unit)

    @rule(unit=st.integers(0, UNITS - 1), coming=st.booleans())
    def crash(self, unit: int, coming: bool) -> None:
        self.up.discard(unit)
        request = self.running.pop(unit, None)
        given_up = self.desk.lower_unit(unit, self.now, coming=coming)
        if request is None or request in self.gone:
            assert given_up is None
            return
        self.crashes[request] = self.crashes.get(request, 0) + 1
        if request in self.begun or self.crashes[request] == 2:
            assert given_up == request
            self.leave(request, "given up")
        else:
            assert given_up is None

    @rule(data=st.data())
    def go_away(self, data: st.DataObject) -> None:
        here = sorted(self.admitted - set(self.doors) - self.gone)
        if here:
            request = data.draw(st.sampled_from(here))
            unit = self.desk.withdraw(request, self.now)
            if unit is None:
                self.leave(request, "withdrawn")
            else:
                assert self.running[unit] == request
                self.gone.add(request)

    @rule(seconds=st.sampled_from([0.0, 0.1, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for request in self.desk.overdue(self.now):
            assert request not in self.running.values()
            self.leave(request, "overdue")

    @invariant()
    def consistent(self) -> None:
        self.desk.check()
        view = self.desk.view(self.now)
        waiting = set(view.request.tolist())
        running = set(self.running.values())
        assert self.admitted == waiting | running | set(self.doors) | self.gone
        assert not (waiting | running - self.gone) & set(self.doors), "who has left is not here"
        assert [int(r) for r in view.running] == [self.running.get(u, -1) for u in range(UNITS)]
        assert [math.isinf(free) for free in view.free_at] == [unit not in self.up for unit in range(UNITS)]
        assert len(waiting) <= 6 + len(self.crashes)


DeskMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestDesk = DeskMachine.TestCase


def test_what_runs_on_a_unit_that_fails_is_repeated_once() -> None:
    desk = up(make_desk())
    number = desk.admit(wish(), 0.0)
    (first,) = dispatch(desk)
    assert desk.lower_unit(first.unit, 1.0, coming=True) is None
    (second,) = dispatch(desk, 1.0)
    assert (second.request, second.unit != first.unit) == (number, True)
    assert desk.lower_unit(second.unit, 2.0, coming=True) == number
    assert (desk.waiting, desk.running) == (0, 0)


def test_what_is_put_back_keeps_its_place_before_later_requests() -> None:
    desk = up(make_desk())
    early = desk.admit(wish(), 0.0)
    (start,) = dispatch(desk)
    late = desk.admit(wish(), 1.0)
    desk.lower_unit(start.unit, 2.0, coming=True)
    view = desk.view(2.0)
    assert view.request.tolist() == [early, late]
    assert (view.ready_since[0], view.served[0]) == (2.0, 2.0)


def test_a_full_queue_says_when_to_come_back_by_its_work() -> None:
    desk = make_desk(most=2)
    for model, kind, seconds in ((0, 0, 7.0), (0, 1, 9.0)):
        desk.estimates.begin_with(model, kind, seconds)
    up(desk, 0)
    for _ in range(2):
        desk.admit(wish(), 0.0)
    with pytest.raises(RequestRefused, match=r"queue is full \(2 requests\)") as refused:
        desk.admit(wish(), 0.0)
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "14"})


def test_a_model_whose_units_have_all_failed_is_refused_and_those_that_wait_are_given_up() -> None:
    desk = up(make_desk())
    waiting = desk.admit(wish(model=2), 0.0)
    for unit in (2, 3):
        desk.lower_unit(unit, 1.0, coming=False)
    with pytest.raises(RequestRefused, match="every unit of this model has failed"):
        desk.admit(wish(model=2), 1.0)
    assert desk.overdue(1.0) == [waiting]
    desk.admit(wish(model=0), 1.0)


def test_deadlines_are_counted_by_tenant() -> None:
    desk = up(make_desk())
    for tenant, deadline in ((0, 1.0), (0, 3.0), (1, 2.0)):
        desk.admit(wish(deadline=deadline, tenant=tenant), 0.0)
    kept = [desk.answered(start.unit, 2.0) for start in dispatch(desk)]
    view = desk.view(2.0)
    assert kept == [False, True, True]
    assert (view.tenant_ended.tolist(), view.tenant_kept.tolist()) == ([2, 1], [1, 1])


@pytest.mark.parametrize(
    ("rows", "units", "why"),
    [
        ([0, 0], [0, 1], "twice"),
        ([0, 1], [0, 0], "twice"),
        ([5], [0], "no waiting row 5"),
        ([0], [9], "no unit 9"),
        ([0], [3], "s1 is not free"),
        ([1], [2], "s0 does not run this model"),
    ],
)
def test_a_dispatch_that_cannot_be_changes_nothing(rows: list[int], units: list[int], why: str) -> None:
    desk = up(make_desk(), 0, 1, 2)
    desk.admit(wish(), 0.0)
    desk.admit(wish(model=1), 0.0)
    with pytest.raises(BadDispatch, match=why):
        desk.obey(Dispatch(np.array(rows, np.int32), np.array(units, np.int32)), 0.0)
    assert (desk.waiting, desk.running) == (2, 0)
    assert len(dispatch(desk)) == 2


def test_estimates_are_a_mean_at_first_and_follow_later() -> None:
    estimates = Estimates(("m",), ("k",), np.array([[True]]), np.array([2.0]), {})
    first = estimates.table
    for seconds in (1.0, 2.0, 3.0):
        estimates.observe(0, 0, seconds)
    assert estimates.seconds(0, 0) == pytest.approx(2.0)
    assert estimates.table is not first
    assert estimates.table.joules[0, 0] == pytest.approx(2.0 * estimates.table.seconds[0, 0])
    for _ in range(100):
        estimates.observe(0, 0, 8.0)
    assert estimates.seconds(0, 0) == pytest.approx(8.0, rel=1e-3)
    assert estimates.table.seconds[0, 0] == pytest.approx(8.0, rel=0.06)


def test_an_overrunning_request_is_believed_to_end_soon_not_before_now() -> None:
    desk = up(make_desk(), 0)
    desk.admit(wish(), 0.0)
    dispatch(desk)
    assert desk.view(0.002).free_at[0] == pytest.approx(0.01)
    assert desk.view(5.0).free_at[0] == pytest.approx(5.001)
    assert desk.hanging(5.0, 4.0) == [0]
