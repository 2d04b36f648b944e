"""The bound on deadlines kept: not above what can be seen to be possible, and never below what any policy does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_views import timed_cases
from system_cases import cost_table, request_table, unit_system

from mirage.allocation.inference import bound
from mirage.allocation.inference.bound import most_kept
from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.rules import Sharing
from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from mirage.domain.inference import CostTable, DeviceSet, RequestTable

Case = tuple["RequestTable", "DeviceSet", "CostTable"]

NAMES = ["edf", "edf:late-last+spare", "sjf:wait+late-last", "triage", "listed", "random:3", "herald:late-last"]


@given(
    case=timed_cases(),
    name=st.sampled_from(NAMES),
    sharing=st.sampled_from(list(Sharing)),
    slot=st.sampled_from([None, 0.25, 1.0, 7.3]),
)
def test_no_policy_keeps_more(case: Case, name: str, sharing: Sharing, slot: float | None) -> None:
    kept = SimulatedSystem(*case, SharingRules(sharing)).play(request_policy(name)).kept.sum()
    assert kept <= most_kept(*case, slot)


@pytest.mark.parametrize("scenario", ["contended", "synthetic", "ar-vr"])
def test_no_policy_keeps_more_of_what_is_built_in(scenario: str) -> None:
    from mirage.allocation.inference.workload.scenario import find_scenario
    from mirage.allocation.inference.workload.stage import set_stage

    stage = set_stage(find_scenario(scenario))
    requests = _first(stage.requests(0), 400)
    best = max(
        SimulatedSystem(requests, stage.system, stage.costs, stage.rules).play(request_policy(name)).kept.sum()
        for name in NAMES
    )
    assert best <= most_kept(requests, stage.system, stage.costs) <= len(requests)


def _first(requests: RequestTable, count: int) -> RequestTable:
    columns = {
        name: getattr(requests, name)[:count] for name in ("arrival", "model", "tenant", "deadline", "weight")
    }
    return type(requests)(**columns, tenants=requests.tenants)


@settings(max_examples=40)
@given(case=timed_cases(most_requests=3, share=False))
def test_not_below_the_best_of_all_schedules(case: Case) -> None:
    """Everything that can be begun is tried, or waited for, at each time."""
    assert _best_of_all(SimulatedSystem(*case, SharingRules())) <= most_kept(*case)


def _best_of_all(system: SimulatedSystem) -> int:
    """Of a new system without shared bandwidth: by trying all, segment by segment."""
    return _best_from(system, system.advance(), 0)


def _best_from(system: SimulatedSystem, more: bool, depth: int) -> int:
    if not more or depth > 6:
        return int(system.outcome().kept.sum())
    view = system.view()
    free = [u for u in range(len(view.running)) if view.running[u] < 0]
    best = 0
    for row in range(len(view.request)):
        for unit in {int(view.system.kind[u]): u for u in free}.values():
            if np.isfinite(view.costs.seconds[view.piece[row], view.system.kind[unit]]):
                tried = system.copy()
                tried.dispatch(Dispatch(np.array([row], np.int32), np.array([unit], np.int32)))
                best = max(best, _best_from(tried, tried.is_to_decide or tried.advance(), depth + 1))
    if (view.running >= 0).any():
        waited = system.copy()
        best = max(best, _best_from(waited, waited.advance(), depth + 1))
    return best


def test_exact_where_nothing_is_left_out() -> None:
    """One unit, one second each, all to be answered within the slot of three seconds: three of five."""
    costs = cost_table([[[1.0]]])
    requests = request_table([0.0] * 5, [0] * 5, deadline=np.full(5, 3.0))
    assert most_kept(requests, unit_system([0]), costs, 3.0) == 3
    assert most_kept(requests, unit_system([0, 0]), costs, 3.0) == 5


def test_bandwidth_and_kinds_bound_it() -> None:
    """Four need all of it for a second each; a kind that is ten times slower helps no request."""
    requests = request_table([0.0] * 4, [0] * 4, deadline=np.full(4, 2.0))
    hungry = cost_table([[[1.0]]], dram_bytes=np.array([[8.0]]))
    assert most_kept(requests, unit_system([0] * 4, bandwidth=8.0), hungry) == 2
    assert most_kept(requests, unit_system([0] * 4, bandwidth=16.0), hungry) == 4
    assert most_kept(requests, unit_system([0] * 4), hungry) == 4
    slow = cost_table([[[1.0, 10.0]]])
    assert most_kept(requests, unit_system([0, 1, 1, 1]), slow, 2.0) == 2


def test_one_unit_at_a_time_and_not_before_arrival() -> None:
    """Two seconds of work in a second: on no number of units; nor when all the time was before it came."""
    costs = cost_table([[[1.0], [1.0]]])
    requests = request_table([0.0, 5.0], [0, 0], deadline=np.array([1.0, 6.5]))
    assert most_kept(requests, unit_system([0] * 3), costs, 1.0) == 0


def test_without_a_deadline_all_are_kept() -> None:
    requests = request_table([0.0] * 9, [0] * 9)
    assert most_kept(requests, unit_system([0]), cost_table([[[1e6]]])) == 9


@given(seed=st.integers(0, 9))
@settings(max_examples=10)
def test_blocks_only_loosen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.uniform(0.0, 20.0, 60))
    costs = cost_table([[[1.0, 1.5]], [[2.0, 1.0], [1.0, 3.0]]])
    requests = request_table(arrival.tolist(), rng.integers(0, 2, 60).tolist(), deadline=arrival + 4.0)
    whole = most_kept(requests, unit_system([0, 1]), costs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bound, "_FEWEST", 10)
        patched.setattr(bound, "_MOST", 20)
        assert whole <= most_kept(requests, unit_system([0, 1]), costs) <= 60
