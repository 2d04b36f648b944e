"""Policies by rule against slow, plain ones; what holds for all of them; and theory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_views import (
    assigned,
    assigned_waiting,
    free_units,
    in_order,
    is_late,
    remaining,
    seconds,
    timed_cases,
    views,
)
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from system_cases import cost_table, request_table, unit_system

from mirage.allocation.inference.compiled_policies import CompiledPolicy
from mirage.allocation.inference.registry import POLICIES, UnknownRequestPolicy, request_policy
from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem
from mirage.domain.inference import Dispatch, SystemView

if TYPE_CHECKING:
    from mirage.domain.inference import CostTable, DeviceSet, RequestTable

# What each policy orders by, as its docstring says, in the plainest words.
KEYS = {
    "fcfs": lambda view, row: row,
    "edf": lambda view, row: view.deadline[row],
    "llf": lambda view, row: view.deadline[row] - remaining(view, view.piece[row]),
    "sjf": lambda view, row: remaining(view, view.piece[row]),
}


def compiled_names() -> list[str]:
    """All names that need nothing behind a colon and mean a compiled policy."""
    plain = [name for name in sorted(POLICIES) if not name.endswith(":")]
    return [name for name in plain if isinstance(request_policy(name), CompiledPolicy)]


NAMES = [
    *compiled_names(),
    "edf:late-last",
    "edf:spare",
    "llf:wait+late-last",
    "herald:late-last",
    "dream:late-last",
    "random:7",
]


def pairs_of(dispatch: Dispatch) -> list[tuple[int, int]]:
    return list(zip(dispatch.ready.tolist(), dispatch.unit.tolist(), strict=True))


def pairs_with_kinds(view: SystemView, dispatch: Dispatch) -> list[tuple[int, int]]:
    """Units of one kind are as good as each other."""
    return sorted((row, int(view.system.kind[unit])) for row, unit in pairs_of(dispatch))


@pytest.mark.parametrize("name", sorted(KEYS))
@given(view=views())
def test_ordering_as_a_plain_one(name: str, view: SystemView) -> None:
    def key(row: int) -> object:
        return KEYS[name](view, row)

    def key_late_last(row: int) -> object:
        return is_late(view, row), KEYS[name](view, row)

    for options, plain, order in (
        ("", assigned, key),
        (":late-last", assigned, key_late_last),
        (":wait", assigned_waiting, key),
        (":wait+late-last", assigned_waiting, key_late_last),
    ):
        sparing = f"{options}+spare" if options else ":spare"
        within = plain(view, in_order(view, order), view.system.bandwidth)
        assert pairs_of(request_policy(name + sparing).decide(view)) == within
        assert pairs_of(request_policy(name + options).decide(view)) == plain(view, in_order(view, order))


@given(view=views())
def test_prema_as_a_plain_one(view: SystemView) -> None:
    def tokens(row: int) -> float:
        whole = remaining(view, int(view.costs.first[view.model[row]]))
        return view.weight[row] * (1.0 + (view.now - view.arrival[row] - view.served[row]) / whole)

    most = max(tokens(row) for row in range(len(view.request)))
    threshold = next((level for level in (9.0, 3.0, 1.0) if most >= level), most)
    order = in_order(view, lambda row: (tokens(row) < threshold, remaining(view, view.piece[row])))
    assert pairs_of(request_policy("prema").decide(view)) == assigned(view, order)


@pytest.mark.parametrize("name", NAMES)
@given(view=views())
def test_only_what_can_begin(name: str, view: SystemView) -> None:
    dispatch = request_policy(name).decide(view)
    assert len(set(dispatch.ready.tolist())) == len(set(dispatch.unit.tolist())) == len(dispatch.ready)
    assert set(dispatch.unit.tolist()) <= set(free_units(view))
    assert all(np.isfinite(seconds(view, row, unit)) for row, unit in pairs_of(dispatch))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "magma"])
@given(view=views(), seed=st.integers(0, 2**32 - 1))
def test_units_of_one_kind_are_alike(name: str, view: SystemView, seed: int) -> None:
    """Numbering the units otherwise changes nothing but which of the like ones is taken.

    Not so for a search that draws units by their numbers: among plans of one fitness it may find another.
    """
    order = np.random.default_rng(seed).permutation(len(view.running))
    numbered = replace(
        view,
        system=replace(view.system, kind=view.system.kind[order]),
        running=view.running[order],
        running_piece=view.running_piece[order],
        running_deadline=view.running_deadline[order],
        running_weight=view.running_weight[order],
        free_at=view.free_at[order],
        drawn=view.drawn[order],
    )
    spread = replace(view.costs, seconds=view.costs.seconds * np.array([1.0, np.pi]))  # no ties between kinds
    view, numbered = replace(view, costs=spread), replace(numbered, costs=spread)
    one, other = request_policy(name).decide(view), request_policy(name).decide(numbered)
    assert pairs_with_kinds(view, one) == pairs_with_kinds(numbered, other)


class Asked:
    """A compiled policy that is not known as one: it is asked each time, as the gateway does."""

    period = 0.0

    def __init__(self, policy: CompiledPolicy) -> None:
        self.name, self._policy = policy.name, policy

    def begin(self) -> None:
        self._policy.begin()

    def decide(self, view: SystemView) -> Dispatch:
        return self._policy.decide(view)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(case=timed_cases())
def test_asked_each_time_or_compiled_whole(name: str, case: tuple[RequestTable, DeviceSet, CostTable]) -> None:
    policy = request_policy(name)
    assert isinstance(policy, CompiledPolicy)
    whole = SimulatedSystem(*case, SharingRules()).play(policy)
    asked = SimulatedSystem(*case, SharingRules()).play(Asked(policy))
    np.testing.assert_array_equal(whole.begin, asked.begin)
    np.testing.assert_array_equal(whole.end, asked.end)
    assert np.isfinite(whole.end).all()  # all users is answered in the end


@given(
    windows=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=6),
)
def test_edf_is_optimal_on_one_unit(windows: list[tuple[int, int, int]]) -> None:
    """Segments of one second, whole times: all deadlines can be kept if and only if seconds match segments."""
    windows = sorted(windows)
    lengths = sorted({length for _, length, _ in windows})
    costs = cost_table([[[1.0]] * length for length in lengths])
    requests = request_table(
        [float(arrival) for arrival, _, _ in windows],
        [lengths.index(length) for _, length, _ in windows],
        deadline=[float(arrival + length + slack) for arrival, length, slack in windows],
    )
    outcome = SimulatedSystem(requests, unit_system([0]), costs, SharingRules()).play(request_policy("edf"))
    assert bool(outcome.kept.all()) == _can_all_be_kept(windows)


def _can_all_be_kept(windows: list[tuple[int, int, int]]) -> bool:
    horizon = max(arrival + length + slack for arrival, length, slack in windows)
    rows = [
        [arrival <= second < arrival + length + slack for second in range(horizon)]
        for arrival, length, slack in windows
        for _ in range(length)
    ]
    return bool((maximum_bipartite_matching(csr_matrix(np.array(rows)), perm_type="column") >= 0).all())


def test_prema_lets_the_patient_grow() -> None:
    """A long request of weight 1 comes before short ones once its tokens reach 9, and not before."""
    costs = cost_table([[[10.0]], [[1.0]]])
    for waited, expected in ((79.0, 1), (80.0, 0)):
        view = _view(
            costs, now=100.0, model=[0, 1], arrival=[100.0 - waited, 100.0], weight=[1.0, 9.0], deadline=[1e3, 1e3]
        )
        first = request_policy("prema").decide(view).ready[0]
        # at 80 s both are candidates, and the shorter one is taken
        assert first == 1
        alone = replace(view, weight=np.array([1.0, 8.0]))
        assert request_policy("prema").decide(alone).ready[0] == expected


def test_dream_does_not_let_late_requests_sink() -> None:
    costs = cost_table([[[2.0]]])
    late_and_easy = _view(
        costs, now=10.0, model=[0, 0], arrival=[1.0, 1.0], weight=[1.0, 1.0], deadline=[9.0, 100.0]
    )
    assert request_policy("dream").decide(late_and_easy).ready.tolist() == [0]
    assert request_policy("planaria").decide(late_and_easy).ready.tolist() == [0]
    assert request_policy("dream:late-last").decide(late_and_easy).ready.tolist() == [1]


def test_dream_by_hand() -> None:
    """Urgency 2/4 x 1 next to 2/8 x 1 with 3 seconds of idling: .5 against .25 + .1 x 3/2."""
    costs = cost_table([[[2.0]]])
    view = _view(costs, now=10.0, model=[0, 0], arrival=[7.0, 10.0], weight=[1.0, 1.0], deadline=[18.0, 14.0])
    assert request_policy("dream").decide(view).ready.tolist() == [1]
    longer = replace(view, ready_since=np.array([4.0, 10.0]))  # .25 + .1 x 6/2 = .55
    assert request_policy("dream").decide(longer).ready.tolist() == [0]


def test_planaria_takes_the_slowest_unit_that_is_in_time() -> None:
    costs = cost_table([[[1.0, 4.0]]])
    for deadline, unit in ((14.0, 1), (13.0, 0)):
        view = _view(costs, now=10.0, model=[0], arrival=[10.0], weight=[1.0], deadline=[deadline], kinds=[0, 1])
        assert request_policy("planaria").decide(view).unit.tolist() == [unit]


def test_herald_prefers_little_energy_and_delay_within_its_bound() -> None:
    for slower, unit in ((1.4, 1), (1.6, 0)):
        costs = cost_table([[[1.0, slower]]], joules=np.array([[3.0, 1.0]]))
        view = _view(costs, now=0.0, model=[0], arrival=[0.0], weight=[1.0], deadline=[9.0], kinds=[0, 1])
        assert request_policy("herald").decide(view).unit.tolist() == [unit]


@pytest.mark.parametrize("busy", [0, 1])
def test_herald_waits_for_no_busy_unit_while_a_like_one_is_free(busy: int) -> None:
    view = _view(
        cost_table([[[1.0]]]), now=0.0, model=[0], arrival=[0.0], weight=[1.0], deadline=[9.0], kinds=[0, 0]
    )
    running, free_at = np.array([-1, -1]), np.zeros(2)
    running[busy], free_at[busy] = 7, 0.125
    taken = replace(
        view,
        running=running,
        running_piece=np.where(running < 0, -1, 0),
        free_at=free_at,
        running_deadline=np.where(running < 0, np.inf, 9.0),
    )
    assert request_policy("herald").decide(taken).unit.tolist() == [1 - busy]


def test_waiting_for_a_better_unit() -> None:
    costs = cost_table([[[1.0, 5.0]]])
    view = _view(costs, now=0.0, model=[0], arrival=[0.0], weight=[1.0], deadline=[9.0], kinds=[0, 1])
    busy = replace(
        view,
        running=np.array([7, -1]),
        running_piece=np.array([0, -1]),
        free_at=np.array([3.0, 0.0]),
        running_deadline=np.array([9.0, np.inf]),
    )
    assert request_policy("edf").decide(busy).unit.tolist() == [1]
    assert request_policy("edf:wait").decide(busy).unit.tolist() == []
    later = replace(busy, free_at=np.array([4.5, 0.0]))
    assert request_policy("edf:wait").decide(later).unit.tolist() == [1]
    down = replace(busy, free_at=np.array([np.inf, 0.0]))
    assert request_policy("lft").decide(down).unit.tolist() == [1]


def test_a_unit_that_is_overdue_is_not_waited_for_for_ever() -> None:
    costs = cost_table([[[1.0, 5.0]]])
    view = _view(costs, now=10.0, model=[0], arrival=[0.0], weight=[1.0], deadline=[99.0], kinds=[0, 1])
    hung = replace(
        view,
        running=np.array([7, -1]),
        running_piece=np.array([0, -1]),
        free_at=np.array([5.0, 0.0]),
        running_deadline=np.array([9.0, np.inf]),
    )
    assert request_policy("lft").decide(hung).unit.tolist() == [1]


def test_seeds_matter_to_random_alone() -> None:
    costs = cost_table([[[1.0]]])
    view = _view(costs, now=0.0, model=[0] * 30, arrival=[0.0] * 30, weight=[1.0] * 30, deadline=[9.0] * 30)
    firsts = {int(request_policy(f"random:{seed}").decide(view).ready[0]) for seed in range(20)}
    assert len(firsts) > 10
    assert request_policy("random:3").decide(view).ready[0] == request_policy("random:3").decide(view).ready[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("edf:latelast", "late-last, spare, wait"),
        ("herald:wait", "herald: unknown option 'wait'"),
        ("random:x", "an integer"),
        ("prima", "prema"),
    ],
)
def test_names_that_mean_nothing(name: str, said: str) -> None:
    with pytest.raises(UnknownRequestPolicy, match=said):
        request_policy(name)


def _view(
    costs: CostTable,
    *,
    now: float,
    model: list[int],
    arrival: list[float],
    weight: list[float],
    deadline: list[float],
    kinds: list[int] | None = None,
) -> SystemView:
    """Requests at their beginning, units that are free."""
    kinds = kinds or [0]
    count, units = len(model), len(kinds)
    rows = np.array(model, dtype=np.int32)
    return SystemView(
        now=now,
        system=unit_system(kinds),
        costs=costs,
        request=np.arange(count),
        model=rows,
        piece=costs.first[rows],
        tenant=np.zeros(count, np.int32),
        arrival=np.array(arrival),
        deadline=np.array(deadline),
        weight=np.array(weight),
        ready_since=np.array(arrival),
        served=np.zeros(count),
        running=np.full(units, -1),
        running_piece=np.full(units, -1),
        running_deadline=np.full(units, np.inf),
        running_weight=np.zeros(units),
        free_at=np.zeros(units),
        drawn=np.zeros(units),
        tenant_ended=np.zeros(1, np.int64),
        tenant_kept=np.zeros(1, np.int64),
    )


@pytest.mark.parametrize(("name", "ends"), [("edf", [2.0, 2.0]), ("edf:spare", [1.0, 2.0])])
def test_units_stay_free_where_bandwidth_is_spent(name: str, ends: list[float]) -> None:
    """Two that want all the bandwidth for a second each, to be answered in one second and in two."""
    requests = request_table([0.0, 0.0], [0, 0], deadline=np.array([1.0, 2.0]))
    costs = cost_table([[[1.0]]], dram_bytes=np.array([[8.0]]), compute_seconds=np.array([[0.0]]))
    system = unit_system([0, 0], bandwidth=8.0)
    assert SimulatedSystem(requests, system, costs, SharingRules()).play(request_policy(name)).end.tolist() == ends
