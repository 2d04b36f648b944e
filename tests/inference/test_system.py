"""The simulated system, against cases computed manually."""

from __future__ import annotations

import numpy as np
import pytest
from plain_policies import PlainOrder, Waiting
from system_cases import cost_table, request_table, unit_system

from mirage.allocation.inference.encode import ImpossibleRequests
from mirage.allocation.inference.simulation import NothingBegun, SharingRules, SimulatedSystem
from mirage.domain.inference import Dispatch


def test_one_request_takes_what_its_pieces_take() -> None:
    costs = cost_table([[[0.1], [0.2], [0.3]]], joules=[[1.0], [2.0], [4.0]])
    system = SimulatedSystem(
        request_table([0.5], [0], deadline=[1.2]), unit_system([0]), costs, SharingRules(logged=True)
    )
    outcome = system.play(PlainOrder())
    assert outcome.end[0] == 0.5 + 0.1 + 0.2 + 0.3
    assert outcome.joules[0] == 7.0
    assert outcome.segments.piece.tolist() == [0, 1, 2]
    assert outcome.figures.all.satisfaction == 1.0
    assert outcome.figures.utilisation == pytest.approx(1.0)


def test_pieces_of_one_request_take_turns_with_others() -> None:
    """First come, first served by segment: the older request takes the unit again after each of its segments."""
    costs = cost_table([[[1.0], [1.0]], [[4.0]]])
    system = SimulatedSystem(request_table([0.0, 0.5], [0, 1]), unit_system([0]), costs, SharingRules())
    assert system.play(PlainOrder()).end.tolist() == [2.0, 6.0]


def test_a_unit_never_runs_what_its_kind_cannot() -> None:
    costs = cost_table([[[np.nan, 2.0]]])
    system = SimulatedSystem(request_table([0.0], [0]), unit_system([0, 1]), costs, SharingRules(logged=True))
    outcome = system.play(PlainOrder())
    assert outcome.segments.unit.tolist() == [1]
    with pytest.raises(ImpossibleRequests, match="no unit can run all of m0"):
        SimulatedSystem(request_table([0.0], [0]), unit_system([0, 0]), cost_table([[[np.nan]]]), SharingRules())


def test_bandwidth_slows_by_either_rule() -> None:
    """Two that want 6 and 2 bytes a second of 4: proportionally both at half; max-min, 2 is not slowed."""
    costs = cost_table([[[2.0]], [[2.0]]], dram_bytes=[[12.0], [4.0]])
    requests, units = request_table([0.0, 0.0], [0, 1]), unit_system([0, 0], bandwidth=4.0)
    halved = SimulatedSystem(requests, units, costs, SharingRules(sharing="proportional")).play(PlainOrder())
    # 1: ends at 4, its 4 bytes at 1 per second; 0: half is done then, the rest at 4 of the 6 bytes a second.
    assert halved.end.tolist() == [4.0, 4.0]
    fair = SimulatedSystem(requests, units, costs, SharingRules(sharing="roofline")).play(PlainOrder())
    assert fair.end.tolist() == [2.0 + 8.0 / 4.0, 2.0]
    assert fair.bytes_moved == 16.0


def test_deciding_takes_time_and_energy() -> None:
    costs = cost_table([[[1.0], [1.0]]])
    rules = SharingRules(decision_seconds=0.25, decision_joules=3.0)
    outcome = SimulatedSystem(request_table([0.0], [0]), unit_system([0]), costs, rules).play(PlainOrder())
    assert outcome.end.tolist() == [2.5]
    assert outcome.policy_joules == 6.0


def test_idle_units_draw_their_watts() -> None:
    outcome = SimulatedSystem(
        request_table([0.0, 5.0], [0, 0]),
        unit_system([0, 0], idle_watts=2.0),
        cost_table([[[1.0]]]),
        SharingRules(),
    ).play(PlainOrder())
    assert outcome.figures.idle_joules * 2 == 2.0 * (2 * 6.0 - 2.0)


def test_a_view_is_of_the_ready_in_order_of_arrival() -> None:
    costs = cost_table([[[1.0], [1.0]]])
    requests = request_table([0.0, 0.25, 0.5], [0, 0, 0], deadline=[9.0, 8.0, 7.0])
    system = SimulatedSystem(requests, unit_system([0]), costs, SharingRules())
    assert system.advance()
    view = system.view()
    assert (view.now, view.request.tolist(), view.running.tolist()) == (0.0, [0], [-1])
    system.dispatch(Dispatch(np.array([0], np.int32), np.array([0], np.int32)))
    assert system.advance(0.75)
    view = system.view()
    assert (view.now, view.request.tolist(), view.free_at.tolist()) == (0.75, [1, 2], [1.0])
    assert (view.running_piece.tolist(), view.running_deadline.tolist()) == ([0], [9.0])
    assert system.advance()
    view = system.view()
    assert (view.now, view.request.tolist(), view.piece.tolist()) == (1.0, [0, 1, 2], [1, 0, 0])
    assert (view.ready_since.tolist(), view.served.tolist()) == ([1.0, 0.25, 0.5], [1.0, 0.0, 0.0])


@pytest.mark.parametrize(("rows", "units"), [([1], [0]), ([0], [1]), ([0, 0], [0, 0]), ([-1], [0])])
def test_a_dispatch_that_cannot_be_is_refused(rows: list[int], units: list[int]) -> None:
    system = SimulatedSystem(request_table([0.0], [0]), unit_system([0]), cost_table([[[1.0]]]), SharingRules())
    system.advance()
    with pytest.raises(ValueError, match="row"):
        system.dispatch(Dispatch(np.array(rows, np.int32), np.array(units, np.int32)))


@pytest.mark.parametrize("period", [0.0, 0.5])
def test_a_policy_that_begins_nothing_is_stopped(period: float) -> None:
    system = SimulatedSystem(request_table([0.0], [0]), unit_system([0]), cost_table([[[1.0]]]), SharingRules())
    with pytest.raises(NothingBegun, match="1 requests wait"):
        system.play(Waiting(period))


def test_a_copy_goes_on_alone() -> None:
    costs = cost_table([[[1.0], [1.0]]])
    system = SimulatedSystem(request_table([0.0, 0.0], [0, 0]), unit_system([0]), costs, SharingRules())
    system.advance()
    twin = system.copy()
    assert twin.play(PlainOrder()).end.tolist() == [2.0, 4.0]
    assert np.isnan(system.outcome().end).all()
    assert system.play(PlainOrder()).end.tolist() == [2.0, 4.0]


def test_faults_are_named_all_at_once() -> None:
    costs = cost_table([[[0.0]]], joules=[[-1.0]])
    with pytest.raises(ImpossibleRequests, match=r"more than 0 seconds.*joules"):
        SimulatedSystem(request_table([0.0], [0]), unit_system([0]), costs, SharingRules())
    with pytest.raises(ImpossibleRequests, match=r"and ascend.*models.*deadlines"):
        SimulatedSystem(
            request_table([1.0, 0.0], [0, 3], deadline=[0.5, 9.0]),
            unit_system([0]),
            cost_table([[[1.0]]]),
            SharingRules(),
        )


def test_many_waiting_find_room() -> None:
    count = 5000
    system = SimulatedSystem(
        request_table([0.0] * count, [0] * count),
        unit_system([0]),
        cost_table([[[1.0]]]),
        SharingRules(logged=True),
    )
    outcome = system.play(PlainOrder("arrival"))
    assert outcome.end.tolist() == list(range(1, count + 1))
    assert len(outcome.segments) == count
