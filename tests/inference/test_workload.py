"""Scenarios: what is read, what is drawn, and how much it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from system_cases import cost_table, unit_system

from mirage.allocation.inference.bound import capacity
from mirage.allocation.inference.costs.tables import UnknownCostTable
from mirage.allocation.inference.encode import isolated_seconds
from mirage.allocation.inference.workload.scenario import (
    Bound,
    Bursts,
    Measure,
    Poisson,
    built_in_scenarios,
    find_scenario,
)
from mirage.allocation.inference.workload.stage import draw_times, read_trace, set_stage, synthetic_costs
from mirage.domain.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """
load = 0.8
duration = "2s"
[system]
costs = "synthetic:3"
units = [{ kind = "kind0", count = 2, idle_watts = 0.5 }, { kind = "kind1" }]
bandwidth_gbs = 10
sharing = "proportional"
[[tenants]]
name = "a"
models = { model0 = 3, model1 = 1 }
deadline = "isolated * 2.5"
deadlines = { model1 = "20ms" }
share = 2
[[tenants]]
name = "b"
models = ["model2"]
deadline = "none"
weight = 4
"""


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "tried.toml").write_text(text)
    return str(tmp_path / "tried.toml")


def test_a_scenario_is_read(tmp_path: Path) -> None:
    scenario = find_scenario(write(tmp_path, SCENARIO))
    assert (scenario.name, scenario.load, scenario.duration, scenario.bandwidth) == ("tried", 0.8, 2.0, 1e10)
    a, b = scenario.tenants
    assert (a.models, a.share, a.bound) == ((("model0", 3.0), ("model1", 1.0)), 2.0, Bound(2.5, Measure.ISOLATED))
    assert (a.bounds, b.bound, b.weight) == ((("model1", Bound(0.02)),), Bound(math.inf), 4.0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("load = 0.8", ""), "load: required"),
        (('"2s"', '"2 days"'), "duration: invalid time '2 days'"),
        (('"isolated * 2.5"', '"soon"'), "tenants.0.deadline: invalid deadline 'soon'"),
        (('"none"', '"0ms"'), "tenants.1: deadline: must be above 0"),
        (('name = "b"', 'name = "a"'), "duplicate name"),
        (("{ model1 =", "{ model5 ="), "deadlines: model5: not among the models"),
        (("count = 2", "count = 0"), "system.units.0.count"),
        (('kind = "kind1"', 'kind = "kind0"'), "duplicate kind"),
        (("load = 0.8", "load = 0.8\narrivals = { kind = 'bursts', factor = 5 }"), "factor x part is above 1"),
        (("load = 0.8", "load = 0.8\narrivals = { kind = 'trace' }"), "path: required"),
        (("load = 0.8", "load = 0.8\nspeed = 3"), "speed: Extra inputs are not permitted"),
        (("load", "= ="), "invalid TOML"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, change: tuple[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=r"tried\.toml: ") as caught:
        find_scenario(write(tmp_path, SCENARIO.replace(*change)))
    assert fault in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"load.*duration"):
        find_scenario(write(tmp_path, SCENARIO.replace("0.8", "-1").replace('"2s"', '"0s"')))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("synthetic:3", "synthetic:x"), "the seed must be a number"),
        (('"kind1"', '"kind7"'), "no costs of kind7 (known kinds: kind0, kind1"),
        (('["model2"]', '["resnet"]'), "tenant b: no costs of resnet"),
        (('"none"', '"mlperf"'), "MLPerf has no bound for model2"),
        (('"2s"', '"9000h"'), "more than 20,000,000 requests"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, change: tuple[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_stage(find_scenario(write(tmp_path, SCENARIO.replace(*change))))
    assert fault in str(caught.value)


def test_costs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnknownCostTable, match="no cost table 'nothing'"):
        set_stage(find_scenario(write(tmp_path, SCENARIO.replace("synthetic:3", "nothing"))))


def test_pieces_may_be_grouped(tmp_path: Path) -> None:
    fine = set_stage(find_scenario(write(tmp_path, SCENARIO))).costs
    (tmp_path / "coarse").mkdir()
    grouped = SCENARIO.replace("bandwidth_gbs", "pieces = 4\nbandwidth_gbs")
    coarse = set_stage(find_scenario(write(tmp_path / "coarse", grouped))).costs
    assert np.diff(coarse.first).max() <= 4 < np.diff(fine.first).max()
    assert np.allclose(coarse.remaining()[coarse.first[:-1]], fine.remaining()[fine.first[:-1]])


def test_a_name_that_is_no_scenario() -> None:
    with pytest.raises(ConfigError, match=r"built-in scenarios are: .*heavy.*light"):
        find_scenario("gentle")


@pytest.mark.parametrize("name", built_in_scenarios())
def test_built_in_scenarios_are_set(name: str) -> None:
    stage = set_stage(find_scenario(name))
    requests = stage.requests(7)
    assert len(requests) == pytest.approx(stage.rates.sum() * stage.scenario.duration, rel=0.2)
    assert set(np.unique(requests.tenant)) == set(range(len(stage.scenario.tenants)))


def test_requests_are_those_of_their_seed_and_deadlines_those_of_their_tenant(tmp_path: Path) -> None:
    stage = set_stage(find_scenario(write(tmp_path, SCENARIO)))
    one, again, other = stage.requests(1), stage.requests(1), stage.requests(2)
    assert np.array_equal(one.arrival, again.arrival)
    assert np.array_equal(one.model, again.model)
    assert not np.array_equal(one.arrival[:5], other.arrival[:5])
    assert (np.diff(one.arrival) >= 0).all()
    allowed = one.deadline - one.arrival
    isolated = isolated_seconds(stage.costs, stage.system)
    assert np.allclose(allowed[one.model == 0], 2.5 * isolated[0])
    assert np.allclose(allowed[one.model == 1], 0.02)
    assert np.isinf(allowed[one.tenant == 1]).all()
    assert set(one.weight[one.tenant == 1]) == {4.0}


def test_shares_are_of_the_work_and_the_load_of_what_is_possible(tmp_path: Path) -> None:
    stage = set_stage(find_scenario(write(tmp_path, SCENARIO)))
    isolated = isolated_seconds(stage.costs, stage.system)
    work = stage.rates * (stage.mixes @ isolated)
    assert work[0] == pytest.approx(2 * work[1])
    assert stage.mixes[0, 0] == 3 * stage.mixes[0, 1]
    mix = stage.rates @ stage.mixes / stage.rates.sum()
    assert stage.rates.sum() == pytest.approx(0.8 * capacity(stage.costs, stage.system, mix))


def test_capacity_by_hand() -> None:
    """Model 0 is four times as fast on kind 0, model 1 as fast on either. Half of each.

    Kind 0 runs all of model 0 and a of model 1: r/2 + 1 a = 1, kind 1 the rest: 1 (r/2 - a) = 1; so r = 2, a = 0.
    With twice as many units of kind 0: r/2 + a = 2, r/2 - a = 1: r = 3.
    """
    costs = cost_table([[[1.0, 4.0]], [[1.0, 1.0]]])
    half = np.array([0.5, 0.5])
    assert capacity(costs, unit_system([0, 1]), half) == pytest.approx(2.0)
    assert capacity(costs, unit_system([0, 0, 1]), half) == pytest.approx(3.0)
    assert capacity(costs, unit_system([1, 1]), half) == pytest.approx(2 / 2.5)


def test_capacity_is_no_more_than_the_bandwidth_and_nothing_where_it_cannot_be_run() -> None:
    costs = cost_table([[[1.0]], [[np.nan]]], dram_bytes=[[10.0], [0.0]])
    assert capacity(costs, unit_system([0] * 9, bandwidth=40.0), np.array([1.0, 0.0])) == pytest.approx(4.0)
    assert capacity(costs, unit_system([0]), np.array([0.5, 0.5])) == 0.0


@given(seed=st.integers(0, 50), counts=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_capacity_lies_between_bounds_that_are_easy(seed: int, counts: tuple[int, int]) -> None:
    """At most all units at the speed of the fastest; at least each request wholly on one kind, in equal parts."""
    costs = synthetic_costs(seed, models=3, mean_pieces=3)
    system = unit_system([0] * counts[0] + [1] * counts[1])
    mix = np.array([0.2, 0.3, 0.5])
    fastest = np.repeat(mix, np.diff(costs.first)) @ costs.seconds.min(axis=1)
    whole = costs.remaining()[costs.first[:-1]]
    found = capacity(costs, system, mix)
    assert found <= sum(counts) / fastest * (1 + 1e-9)
    assert found >= sum(count / (mix @ whole[:, kind]) for kind, count in enumerate(counts)) * (1 - 1e-9)


def test_poisson_gaps_and_bursts() -> None:
    """Counts in windows: the variance over the mean is 1 for Poisson, far more for bursts; the means are equal."""
    rng = np.random.default_rng(0)
    steady = draw_times(Poisson(), 50.0, 2000.0, rng)
    bursty = draw_times(Bursts(factor=4.0, part=0.25, seconds=1.0), 50.0, 2000.0, rng)
    for times, low, high in ((steady, 0.9, 1.1), (bursty, 20.0, 200.0)):
        counts = np.histogram(times, bins=2000, range=(0.0, 2000.0))[0]
        assert counts.mean() == pytest.approx(50.0, rel=0.1)
        assert low < counts.var() / counts.mean() < high
        assert (np.diff(times) >= 0).all()
    gaps = np.diff(steady)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)


def test_bursts_are_silent_in_between_only_where_they_are_on_and_off() -> None:
    rng = np.random.default_rng(1)
    off = draw_times(Bursts(factor=5.0, part=0.2, seconds=1.0), 100.0, 500.0, rng)
    low = draw_times(Bursts(factor=2.0, part=0.2, seconds=1.0), 100.0, 500.0, rng)
    assert np.diff(off).max() > 3.0
    assert np.diff(low).max() < 1.0


def test_a_trace_is_read_and_played(tmp_path: Path) -> None:
    text = SCENARIO.replace("load = 0.8\n", "") + '[arrivals]\nkind = "trace"\npath = "seen.csv"\n'
    (tmp_path / "seen.csv").write_text("tenant,time,model\nb,1.5,model2\na,0.25,model1\na,9,model0\n")
    stage = set_stage(find_scenario(write(tmp_path, text)))
    requests = stage.requests(0)
    assert requests.arrival.tolist() == [0.25, 1.5]
    assert requests.deadline.tolist() == [0.27, math.inf]
    (tmp_path / "seen.csv").write_text("tenant,time,model\nb,1.5,model0\n")
    with pytest.raises(ConfigError, match="tenant 'b' does not use 'model0'"):
        stage.requests(0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("time,tenant\n1,a\n", ":1: model: no such column"),
        ("time,tenant,model\n1,a,m\n-2,a,m\n", ":3: time: '-2' is not a number of seconds"),
        ("time,tenant,model\nsoon,a,m\n", ":2: time: 'soon' is not a number"),
        ("time,tenant,model\n1,c,m\n", ":2: tenant: 'c' is not one of: a"),
        ("time,tenant,model\n1,a\n", ":2: model: None is not one of: m"),
    ],
)
def test_a_faulty_trace_names_line_and_field(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace(str(path), ["a"], ["m"])
    assert fault in str(caught.value)
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(str(tmp_path / "none.csv"), ["a"], ["m"])
