"""``mirage allocation requests replay``: policies side by side, and errors before work."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from markupsafe import escape
from typer.testing import CliRunner

from mirage.allocation.inference.comparison import BOUND, COLUMNS, bounded_lines, document, lines, markdown
from mirage.allocation.inference.registry import (
    ALL,
    POLICIES,
    UnknownRequestPolicy,
    named_policies,
    request_policy,
)
from mirage.allocation.inference.replay import RequestReplay, play_all
from mirage.cli.main import app
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.inference.compiled_policies import CompiledPolicy

SCENARIO = """
load = 0.7
duration = "0.2s"
[system]
costs = "synthetic"
units = [{ kind = "kind0", idle_watts = 0.5 }, { kind = "kind1", count = 2 }]
bandwidth_gbs = 20
[[tenants]]
name = "eyes"
models = ["model3", "model7"]
deadline = "isolated*4"
[[tenants]]
name = "ears"
models = ["model5"]
deadline = "15ms"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(SCENARIO)
    return str(tmp_path / "small.toml")


def test_all_see_the_same_requests_and_the_table_says_what_came_of_them(scenario: str) -> None:
    compared = play_all(RequestReplay((scenario,), ("fcfs", "edf"), (0, 1)), 1)
    assert [(run.policy, run.seed) for run in compared.runs] == [("fcfs", 0), ("fcfs", 1), ("edf", 0), ("edf", 1)]
    fcfs, edf = compared.of(scenario, "fcfs"), compared.of(scenario, "edf")
    assert [run.figures.all.requests for run in fcfs] == [run.figures.all.requests for run in edf]
    by_hand = sum(run.figures.all.satisfaction for run in edf) / 2
    assert lines(compared, scenario)[1].cells[0].mean == f"{100 * by_hand:.1f}"
    text = markdown(compared)
    assert "2 seeds of some" in text
    assert "70 % of their capacity" in text
    assert text.count("\n| ") == 4
    found = document(compared)["scenarios"][0]
    assert found["tenants"] == ["eyes", "ears"]
    assert found["policies"][1]["mean"]["satisfaction"] == pytest.approx(by_hand)
    assert set(found["policies"][0]["runs"][0]["models"]) == {"model3", "model5", "model7"}


def test_processes_come_to_the_same(scenario: str) -> None:
    replay = RequestReplay((scenario,), ("fcfs", "edf"), (3, 4))
    counted: list[int] = []
    assert repr(play_all(replay, 2, counted.append).runs) == repr(play_all(replay, 1).runs)  # NaN is not itself
    assert counted == [4, 4, 4, 4]


def test_the_bound_stands_below_the_policies_and_above_their_figures(scenario: str) -> None:
    seen: list[int] = []
    compared = play_all(RequestReplay((scenario,), ("edf", "triage"), (0, 1), bounded=True), 1, seen.append)
    assert seen == [6] * 6
    bounds = compared.bounds_of(scenario)
    for policy in ("edf", "triage"):
        runs = compared.of(scenario, policy)
        assert all(run.figures.all.satisfaction <= limit for run, limit in zip(runs, bounds, strict=True))
    last = bounded_lines(compared, scenario)[-1]
    assert last.policy == BOUND
    assert last.cells[0].mean == f"{100 * sum(bounds) / 2:.1f}"
    assert {cell.mean for cell in (*last.cells[1:], *last.tenants)} == {"\N{EN DASH}"}
    assert document(compared)["scenarios"][0]["bounds"] == list(bounds)
    assert f"| {BOUND} | {last.cells[0].mean}" in markdown(compared)


def test_several_scenarios_stand_side_by_side_first(scenario: str, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SCENARIO.replace("0.7", "0.3"))
    both = (scenario, str(tmp_path / "other.toml"))
    text = markdown(play_all(RequestReplay(both, ("fcfs", "edf"), bounded=True), 1))
    assert text.startswith("SLA, %: ")
    assert text.count("| policy | small | other |") == 4
    assert text.count(f"| {BOUND} |") == 3  # of satisfaction, and of each scenario
    assert "small: " in text
    assert "other: " in text


def test_all_stands_for_what_needs_no_training(scenario: str) -> None:
    assert named_policies("edf, all ,fcfs,relmas:here") == (
        "edf",
        *(name for name in ALL if name != "edf"),
        "relmas:here",
    )
    assert named_policies("edf:late-last") == ("edf:late-last",)
    kinds = {name.partition(":")[0] for name in ALL}
    assert kinds == {name for name in POLICIES if not name.endswith(":")}
    command = ["allocation", "requests", "replay", scenario, "--compare", "all", "--workers", "1", "--bound"]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    rows = [line.split()[0] for line in result.output.splitlines() if line[:1].isalpha()]
    assert [name for name in ALL if name not in rows] == []
    assert BOUND in result.output


class Slow:
    """Decides as another, but takes a while."""

    name, period, decision_seconds, decision_joules = "slow", 0.0, 0.001, 0.5

    def __init__(self, policy: CompiledPolicy) -> None:
        self.begin, self.decide = policy.begin, policy.decide


def test_a_policy_that_says_what_it_costs_is_charged(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "slow", "policies:slow")
    monkeypatch.setattr(
        "mirage.allocation.inference.policies.slow", lambda: Slow(request_policy("fcfs")), raising=False
    )
    compared = play_all(RequestReplay((scenario,), ("fcfs", "slow")), 1)
    free, slow = (compared.of(scenario, policy)[0].figures for policy in ("fcfs", "slow"))
    assert slow.policy_joules == pytest.approx(0.5 * slow.decisions / slow.all.requests)
    assert free.policy_joules == 0.0
    assert slow.all.mean_latency > free.all.mean_latency + 0.001


def test_the_command_writes_everything(scenario: str, tmp_path: Path) -> None:
    out = {name: tmp_path / f"out.{name}" for name in ("json", "markdown", "html")}
    flags = {"json": "--output", "markdown": "--markdown", "html": "--html"}
    options = [part for name, path in out.items() for part in (flags[name], str(path))]
    command = ["allocation", "requests", "replay", scenario, "--compare", "fcfs,edf", "--seeds", "0-1"]
    result = CliRunner().invoke(app, [*command, "--workers", "1", *options], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    assert "SLA of ears, %" in result.output
    assert len(json.loads(out["json"].read_text())["scenarios"][0]["policies"]) == 2
    assert out["markdown"].read_text().startswith("small: 2 seeds")
    page = out["html"].read_text()
    assert page.count("<svg viewBox") == 2
    assert all(escape(column.meaning) in page for column in COLUMNS)
    assert re.search(r"request \d+, model", page)
    assert "<script" not in page


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"policies": ("edf", "edf")}, "expected at least one, without duplicates"),
        ({"seeds": ()}, "seeds: expected at least"),
        ({"policies": ("best",)}, "unknown policy 'best' (choose from "),
        ({"scenarios": ("nowhere.toml",)}, "cannot be read"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is(
    scenario: str, change: dict[str, tuple[str, ...]], fault: str
) -> None:
    replay = {"scenarios": (scenario,), "policies": ("edf",), "seeds": (0,)} | change
    with pytest.raises((ConfigError, UnknownRequestPolicy)) as caught:
        play_all(RequestReplay(**replay), 1)  # type: ignore[arg-type]
    assert fault in str(caught.value)
