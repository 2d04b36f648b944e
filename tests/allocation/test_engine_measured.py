"""Tasks' reports while they run: progress, speed next to other tasks, and the estimates made from them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from engine_world import EPOCH, Site, engine_of, task
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
from mirage.allocation.ddl.estimation import TRUSTED, estimate
from mirage.allocation.ddl.formats.readers import read_speeds
from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.interference import BestResponse
from mirage.allocation.ddl.scored_orderings import Fifo
from mirage.allocation.ddl.service_orderings import means_alike
from mirage.allocation.ddl.speeds import MeasuredRun
from mirage.allocation.engine import situation
from mirage.allocation.engine.allocation_table import given_speeds
from mirage.allocation.engine.discovery import Device, NodeFound
from mirage.allocation.engine.plan import TaskSpec
from mirage.allocation.engine.status import document
from mirage.allocation.engine.step_engines import ProcessEngine
from mirage.allocation.engine.task_interface import NoReport, ProgressReport, last_report, launch_of, read_report
from mirage.cli.allocation import allocation_app

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.engine.agent import Agent
    from mirage.domain.pool import PoolView

# what a task writes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("3 10\n", (3, 10)),
        ("3/10\n", (3, 10)),
        ("7\n", (7, None)),
        ("1 10\n2 10\n3 1", (2, 10)),  # the last line is not whole yet
        ("x" * 9000 + "\n4.5 9\n", (4.5, 9)),
    ],
)
def test_the_last_whole_line_counts(tmp_path: Path, text: str, wanted: tuple[float, float | None]) -> None:
    (tmp_path / "f").write_text(text)
    report = read_report(tmp_path / "f")
    assert report is not None
    assert (report.done, report.total) == wanted


@pytest.mark.parametrize("text", ["", "3 10"])
def test_what_is_not_whole_is_nothing_yet(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    assert read_report(tmp_path / "f") is None
    assert read_report(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["step 3\n", "3 0\n", "-1 5\n", "nan 4\n", "1 2 3\n", "\n"])
def test_a_line_that_says_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(NoReport):
        read_report(tmp_path / "f")


# tasks that work at known speeds


@dataclass
class Work:
    """Tasks that do what they do at the rates that a test gives, and report it."""

    site: Site
    agent: Agent
    rates: dict[str, float]
    done: dict[str, float] = field(default_factory=dict)

    def pass_time(self, seconds: float, *, step: float = 5.0) -> None:
        for _ in range(round(seconds / step)):
            self.site.pass_time(step)
            for key in engine_of(self.agent).living.keys() - engine_of(self.agent).ended.keys():
                self._report(key, step)
            self.agent.cycle()

    def _report(self, key: str, step: float) -> None:
        rate = self.rates.get(key.rpartition(".")[0], 0.0)
        self.done[key] = self.done.get(key, 0.0) + rate * step
        path = self.site.folder.steps / f"{key}.progress"
        path.write_text(f"{self.done[key]} 100000\n")
        os.utime(path, (self.site.now, self.site.now))

    def finish(self, name: str) -> None:
        engine_of(self.agent).finish(f"{name}.1")

    def speeds(self) -> dict[tuple[str, str], float]:
        """The ratio of each model's speed next to another, and its rate alone, by names."""
        found = estimate(self.site.ledger().evidence)
        ratios = {
            (run.model, other.model): float(found.ratio[i, j])
            for i, run in enumerate(found.runs)
            for j, other in enumerate(found.runs)
        }
        return ratios | {(run.model, ""): float(found.throughput[i]) for i, run in enumerate(found.runs)}


def model(name: str, **more: object) -> TaskSpec:
    return task(name, model=name[0], **more)


def begun(tmp_path: Path, *tasks: TaskSpec, **more: object) -> Work:
    site = Site.of(tmp_path, *tasks)
    agent = site.link(**more)  # type: ignore[arg-type]
    agent.cycle()
    return Work(site, agent, {})


def test_a_neighbour_that_slows_a_task_down_is_found_out(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1"), model("b1"))
    long = 50 * TRUSTED
    work.rates = {"a1": 6.0, "b1": 2.0}
    work.pass_time(long, step=10)
    work.finish("b1")
    work.rates = {"a1": 10.0}
    work.pass_time(long, step=10)
    work.finish("a1")
    work.pass_time(10)
    # Ridge regression with W = 50 alone and next to: 50 / 52 of the logarithm.
    found = work.speeds()
    assert np.log(found["a", "b"]) == pytest.approx(np.log(0.6) * 50 / 52, rel=0.01)
    assert found["b", "a"] == 1.0  # ``b`` never ran alone: that speed is unknown
    assert found["a", ""] == pytest.approx(10 * 0.6 ** (1 / 52), rel=0.01)


def test_no_stretch_mixes_two_situations(tmp_path: Path) -> None:
    # Neighbours come and go at odd times; each of its rates is exact as long as none is mixed with another.
    work = begun(tmp_path, model("a1"), *(model(f"b{i}") for i in range(1, 8)), devices=2)
    for i in range(1, 8):
        work.rates = {"a1": 4.0, f"b{i}": 1.0}
        work.pass_time(95 + 10 * i)
        work.finish(f"b{i}")
    work.rates = {"a1": 9.0}
    work.pass_time(300)
    work.finish("a1")
    work.pass_time(10)
    a, b = MeasuredRun("a", 1, 1, "gpu:a100"), MeasuredRun("b", 1, 1, "gpu:a100")
    tallies = work.site.ledger().evidence.tallies
    assert tallies[a, (b,)].rate == pytest.approx(4.0)
    assert tallies[a, ()].rate == pytest.approx(9.0)
    assert tallies[b, (a,)].rate == pytest.approx(1.0)


def test_alone_nobody_is_believed_to_disturb_anybody(tmp_path: Path) -> None:
    work = begun(tmp_path, *(model(name) for name in ("a1", "b1", "c1")), nodes=3, devices=1)
    work.rates = {"a1": 1.0, "b1": 2.0, "c1": 3.0}
    work.pass_time(3000, step=15)
    found = work.speeds()
    assert all(found[one, other] == 1.0 for one in "abc" for other in "abc")
    assert [found[name, ""] for name in "abc"] == pytest.approx([1.0, 2.0, 3.0])


def test_a_task_or_neighbour_without_a_model_is_not_measured(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1"), task("unnamed"))
    work.rates = {"a1": 1.0, "unnamed": 1.0}
    work.pass_time(2000, step=15)
    assert not work.site.ledger().evidence.tallies


def test_the_next_link_begins_with_what_was_measured(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1", max_nodes=2), model("a2", max_nodes=2), model("b1"), model("b2"))
    work.rates = {"a1": 1.0, "a2": 1.0, "b1": 1.0, "b2": 1.0}
    work.pass_time(3 * TRUSTED, step=15)
    next_link = work.site.link(job=2)
    next_link.cycle()
    table = next_link.situation.speeds
    assert table.row.max() > 0
    assert not table.interferes  # never alone: nothing is known of neighbours yet


def test_measured_interference_keeps_tasks_apart(tmp_path: Path) -> None:
    # Measured on one node: a is slowed to a third by b. On two nodes with room everywhere, it goes elsewhere.
    work = begun(tmp_path, model("a1"), model("b1"), model("a2"), model("b2"), devices=2)
    work.rates = {"a1": 1.0, "b1": 3.0}
    work.pass_time(20 * TRUSTED, step=15)
    work.finish("b1")
    work.finish("a1")
    work.pass_time(10)  # a2 and b2 begin
    work.finish("b2")
    work.rates = {"a2": 3.0}
    work.pass_time(20 * TRUSTED, step=15)
    work.finish("a2")
    work.pass_time(10)
    assert _nodes_of_two(work.site.folder.path, work.site.now) == 2
    assert _nodes_of_two(tmp_path / "other", work.site.now) == 1  # where nothing was measured


def _nodes_of_two(folder: Path, now: float) -> int:
    """The number of nodes over which ``a`` and ``b`` are placed, from the measurements in this directory."""
    site = Site.of(folder, model("a3"), model("b3"))
    site.now, site.lives = now, 10

    def decide(view: PoolView) -> object:
        return dispatch(view, Fifo(), BestResponse(), DispatchRules())

    agent = site.link(job=3, nodes=2, decide=decide)
    agent.cycle()
    return len({each.nodes for each in agent.running.values()})


def test_progress_is_shown_and_outlives_its_link(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1"), model("b1"))
    work.rates = {"a1": 100.0}
    work.pass_time(500)
    plan = {spec.name: spec for spec in work.site.plan.tasks}
    rows = document(plan, work.site.ledger(), work.site.now, work.site.folder)["tasks"]
    assert [row["progress"] for row in rows] == [pytest.approx(0.5), 0.0]
    work.finish("a1")
    work.agent.cycle()
    rows = document(plan, work.site.ledger(), work.site.now, work.site.folder)["tasks"]
    assert rows[0]["progress"] is None


def test_progress_tells_how_long_a_task_will_run_yet(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1", expected=60_000.0), model("b1"))
    work.rates = {"a1": 100.0}
    work.pass_time(250)
    running = {0: EPOCH, 1: EPOCH}
    view = work.agent.situation.view(work.site.now, [], running, work.agent.book, work.site.ledger())
    assert view.remaining[0] == pytest.approx(750, rel=0.05)  # a quarter took 250 s, whatever was expected
    assert np.isnan(view.remaining[1])


def test_a_report_that_makes_no_sense_is_remarked_once(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1"))
    (work.site.folder.steps / "a1.1.progress").write_text("epoch three\n")
    for _ in range(10):
        work.site.pass_time(20)
        work.agent.cycle()
    journal = next(work.site.folder.journals.iterdir()).read_text()
    assert journal.count("epoch three") == 1


def test_a_task_finds_where_to_tell(tmp_path: Path) -> None:
    folder = Site.of(tmp_path).folder
    spec = TaskSpec("t", ("/bin/sh", "-c", 'echo "3 4" >"$MIRAGE_PROGRESS"'), directory=str(tmp_path))
    engine = ProcessEngine()
    step = engine.launch(launch_of(spec, 1, "gpu:a100", {"here": [0]}, folder))
    deadline = time.monotonic() + 60
    while engine.poll(step) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    report = last_report(folder, "t", 1)
    assert report is not None
    assert report.part == 0.75


def test_what_was_measured_is_shown_and_written_for_replays(tmp_path: Path) -> None:
    work = begun(tmp_path, model("a1"), model("b1"))
    work.rates = {"a1": 6.0, "b1": 2.0}
    work.pass_time(2 * TRUSTED, step=15)
    work.finish("b1")
    work.rates = {"a1": 12.0}
    work.pass_time(2 * TRUSTED, step=15)
    work.finish("a1")
    work.pass_time(10)
    runner, out = CliRunner(), tmp_path / "speeds.json"
    shown = runner.invoke(allocation_app, ["speeds", str(tmp_path)])
    assert "a, 1 on 1 gpu:a100" in shown.output
    assert runner.invoke(allocation_app, ["speeds", str(tmp_path), "-o", str(out)]).exit_code == 0
    table = read_speeds(f"measured:{out}")
    a, b = (MeasuredRun(name, 1, 1, "gpu:a100") for name in "ab")
    ratio = table.ratio[table.runs.index(a), table.runs.index(b)]
    assert ratio == pytest.approx(np.sqrt(0.5), rel=0.05)  # about half of the logarithm


def test_a_table_given_beforehand_is_known_by_this_pools_kinds_and_nodes(tmp_path: Path) -> None:
    runs = [
        {"model": "m", "devices": 2, "spread": spread, "kind": "v100", "throughput": throughput}
        for spread, throughput in ((1, 8.0), (2, 2.0))
    ]
    content = {"version": 1, "reference_kind": "v100", "runs": runs, "beside": [[0, 0, 0.5]]}
    (tmp_path / "f.json").write_text(json.dumps(content))
    site = Site.of(tmp_path, task("t", model="m", devices=2, max_nodes=2))
    nodes = tuple(NodeFound(name, 8, 1000, (Device(0, "gpu:tesla-v100-sxm2-16gb"),)) for name in ("n1", "n2"))
    agent = site.link(found=nodes)
    agent.situation.given = given_speeds(f"measured:{tmp_path}/f.json", agent.book.pool)
    agent.cycle()
    speeds = agent.situation.speeds
    assert speeds.alone[speeds.row[0, 0]].tolist() == [1.0, 0.25]
    assert speeds.together[speeds.row[0, 0, 0], speeds.row[0, 0, 0]] == 0.5
    assert given_speeds("", agent.book.pool).runs == ()


# what is estimated of run times


def believed(
    spans: list[float], over: list[bool], given: list[float] | None = None, models: list[str] | None = None
) -> tuple[list[float], list[float]]:
    tasks = task_table(tuple(map(str, range(len(spans)))), model=models or ["m"] * len(spans))
    served, succeeded = np.array(spans), np.array(over)
    expected = situation.estimated_run_times(tasks, np.array(given or [np.nan] * len(spans)), served, succeeded)
    return expected.tolist(), situation.estimated_remaining(tasks, expected, served, succeeded, {}).tolist()


def test_what_was_not_said_is_the_mean_of_those_alike() -> None:
    expected, left = believed([100, 300, 0, 50, 0], [True, True, False, False, False], models=[*"mmmmn"])
    assert expected[2:] == [200, 200, 200]  # of another model nothing has ended: of all that have as many devices
    assert left[2:] == [200, 150, 200]


def test_what_its_owner_says_comes_first() -> None:
    expected, left = believed([100, 300, 50], [True, True, False], [np.nan, np.nan, 1000.0])
    assert (expected[2], left[2]) == (1000, 950)


def test_who_outlasts_it_is_as_those_that_lasted_longer() -> None:
    spans, over = [100.0, 200.0, 400.0, 600.0, 250.0], [True] * 4 + [False]
    assert believed(spans, over, [np.nan] * 4 + [240.0])[1][4] == 500 - 250
    assert believed([*spans[:4], 500.0], over)[1][4] == 100  # the mean is 325; only one lasted longer
    assert believed([*spans[:4], 700.0], over)[1][4] == 700  # none did


def test_of_nothing_nothing_is_known() -> None:
    assert np.isnan(believed([0.0, 30.0], [False, False])[1]).all()


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.booleans(), st.sampled_from([np.nan, 10.0, 1e4])), min_size=1, max_size=9
    )
)
def test_nobody_is_believed_to_be_about_to_end_for_ever(rows: list[tuple[float, bool, float]]) -> None:
    spans, over = [row[0] for row in rows], [row[1] for row in rows]
    _, left = believed(spans, over, [row[2] for row in rows])
    for span, done, value in zip(spans, over, left, strict=True):
        assert done or np.isnan(value) or value > 0 or span == 0


def test_means_are_those_of_the_most_alike() -> None:
    tasks = task_table(tuple("abcd"), devices=[1, 1, 1, 2], model=["x", "x", "y", "x"])
    found = means_alike(tasks, np.array([10.0, 30.0, 70.0, 0.0]), np.array([True, True, True, False]))
    assert found == pytest.approx([20, 20, 70, 110 / 3])


def test_progress_before_the_first_minute_tells_nothing() -> None:
    tasks = task_table(("t",))
    for served, wanted in ((30.0, 70.0), (90.0, 270.0)):
        report = {0: ProgressReport(1.0, 4.0, 0.0)}
        given = np.array([100.0])
        left = situation.estimated_remaining(tasks, given, np.array([served]), np.array([False]), report)
        assert left.tolist() == [wanted]
