"""``mirage allocation replay``: published figures through the command, pairs side by side, errors before work."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mirage.allocation.ddl.comparison import document, lines, markdown
from mirage.allocation.ddl.dispatch import DispatchRules
from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource, read_source
from mirage.allocation.ddl.generator import read_mix
from mirage.allocation.ddl.replay import Compared, TaskReplay, parse_pair, play_all
from mirage.cli.main import app
from mirage.cli.run_output import parse_seeds
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIX = """
count = 30
arrival = "poisson"
load = 1.5
tenants = 2
[[classes]]
sizes = [1, 2, 4]
[[classes]]
weight = 0.5
sizes = [8]
"""


@pytest.fixture
def mix(tmp_path: Path) -> TaskSource:
    (tmp_path / "mix.toml").write_text(MIX)
    return TaskSource(str(tmp_path / "mix.toml"), TaskFormat.MIX, "2x8@2.5")


def compared(source: TaskSource, pairs: str, seeds: tuple[int, ...] = (0,), workers: int = 1) -> Compared:
    parsed = tuple(parse_pair(pair) for pair in pairs.split(","))
    return play_all(TaskReplay(source, parsed, seeds=seeds), workers)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("trace", "fifo", "sjf"),
    [("trace1_pr", 9564428, 3469792), ("trace3_pr", 2775249, 1223957), ("trace3", 520028, 247466)],
)
def test_the_command_gives_what_another_program_found(
    shared: Path, tmp_path: Path, trace: str, fifo: int, sjf: int
) -> None:
    path, out = shared / "yardsticks" / "muri" / f"{trace}.csv", tmp_path / "out.json"
    command = ["allocation", "replay", str(path), "--format", "muri", "--pool", "8x8"]
    done = _run([*command, "--compare", "fifo+first-fit,sjf+best-fit", "-o", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert [round(pair["mean"]["mean_jct"]) for pair in told["pairs"]] == [fifo, sjf]
    assert (told["rows"], told["left_out"]) == (told["tasks"], [])
    assert told["pairs"][0]["deviation"]["mean_jct"] is None


def _run(command: Sequence[str]) -> Any:
    return CliRunner().invoke(app, command)


def test_processes_change_nothing(mix: TaskSource) -> None:
    alone = compared(mix, "fifo+first-fit,sjf+best-fit", seeds=(0, 1, 2))
    apart = compared(mix, "fifo+first-fit,sjf+best-fit", seeds=(0, 1, 2), workers=2)
    assert document(alone) == document(apart)
    for one, other in zip(alone.shown, apart.shown, strict=True):
        assert np.array_equal(one.end, other.end)


def test_each_seed_is_a_set_of_its_own_and_the_same_for_all_pairs(mix: TaskSource) -> None:
    found = compared(mix, "fifo+first-fit,fifo+best-fit", seeds=(5, 6))
    first, second = (found.of(pair) for pair in found.replay.pairs)
    assert first[0] != first[1]
    assert [one.fee for one in first] == pytest.approx([one.fee for one in second])  # no speeds: the same work
    assert [one.tasks for one in first] == [30, 30]


def test_the_fee_is_the_work_times_the_price(mix: TaskSource) -> None:
    found = compared(mix, "sjf+best-fit")
    tasks = found.trace.tasks
    assert found.runs[0].figures.fee == pytest.approx(float((tasks.work * tasks.devices).sum()) / 3600 * 2.5)


def test_the_best_of_a_column_is_marked_and_the_change_is_that_of_the_means(mix: TaskSource) -> None:
    found = compared(mix, "fifo+first-fit,sjf+best-fit")
    fifo, sjf = (found.of(pair)[0].mean_jct for pair in found.replay.pairs)
    table = lines(found)
    assert [line.cells[0].best for line in table] == [fifo < sjf, sjf < fifo]
    assert (table[0].change, table[1].change_spread) == ("", "")
    assert float(table[1].change.removesuffix(" %").replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        100 * (sjf / fifo - 1), abs=0.06
    )
    text = markdown(found)
    told = f"30 tasks drawn by {mix.trace} on 2 nodes with 16 devices, without preemption."
    assert text.splitlines()[0] == told
    assert len({line.count("|") for line in text.splitlines()[2:]}) == 1


@pytest.mark.shared
def test_a_task_that_must_be_spread_runs_at_the_speed_measured_for_that(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "trace0").write_text(
        '{"7": {"model": "MoE", "gpu_demand": 8, "total_samples_to_train": 130785.6}}'
    )
    speeds = f"deepshare:{shared / 'yardsticks' / 'deepshare'}"
    for pool, throughput in (
        ("4x2", 27.48),
        ("2x4", 45.18),
        ("8x1", 16.71),
        ("1x8", 45.18),
    ):  # on 4, 2, 8, 1 nodes
        source = TaskSource(str(tmp_path / "trace0"), TaskFormat.DEEPSHARE, pool, speeds)
        outcome = compared(source, "sjf+best-fit").shown[0]
        assert outcome.end == pytest.approx([130785.6 / throughput])


@pytest.mark.shared
def test_openb_takes_its_nodes_for_the_pool(shared: Path) -> None:
    folder = shared / "yardsticks" / "openb"
    pods, nodes = str(folder / "openb_pod_list_default.csv"), str(folder / "openb_node_list_gpu_node.csv")
    trace, _ = read_source(TaskSource(pods, TaskFormat.OPENB, nodes), 0)
    played = compared(TaskSource(pods, TaskFormat.OPENB, nodes), "fifo+first-fit").runs[0].figures
    assert played.ended == len(trace.tasks)
    assert len(trace.tasks) == 8152 - sum(count for _, count in trace.left_out)
    with pytest.raises(ConfigError, match="must be the CSV file of openb's nodes"):
        read_source(TaskSource(pods, TaskFormat.OPENB, "8x8"), 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--format", "swf"], "--format: invalid value 'swf' (choose from muri, openb, jobs, deepshare, mix)"),
        (["--pool", "8"], "is not NODESxDEVICES"),
        (["--compare", "sjf"], "'sjf' is not ORDERING+PLACEMENT"),
        (["--compare", "sjf+nowhere"], "unknown placement policy 'nowhere' (choose from best-fit"),
        (["--compare", "sjf+best-fit,sjf+best-fit"], "--compare: expected at least one, without duplicates"),
        (["--ordering", "alphabet"], "unknown ordering policy 'alphabet'"),
        (["--seeds", "3-1"], "--seeds: invalid value '3-1'"),
        (["--seeds", "1,1"], "--seeds: expected at least one, without duplicates"),
        (["--speeds", "guess:x"], "'guess:x' (choose from deepshare:DIR, gavel:FILE, measured:FILE"),
        (["-o", "nowhere/out.json"], "--output: directory nowhere does not exist"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_played(mix: TaskSource, options: list[str], told: str) -> None:
    command = ["allocation", "replay", mix.trace, "--format", "mix", "--pool", "2x8", *options]
    done = _run(command)
    assert done.exit_code != 0
    assert isinstance(done.exception, MirageError)
    assert told in str(done.exception)


def test_a_recorded_trace_has_one_seed(mix: TaskSource) -> None:
    source = replace(mix, format=TaskFormat.MURI)
    with pytest.raises(ConfigError, match=r"a recorded trace \(muri\) is the same for every seed"):
        compared(source, "sjf+best-fit", seeds=(0, 1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("count = [", "invalid TOML"),
        ("coumt = 3\n[[classes]]\nsizes = [1]", "mix.toml: coumt: Extra inputs are not permitted"),
        ("count = 'many'", "mix.toml: count: Input should be a valid integer"),
        ("count = 3", r"needs \[\[classes\]\], or --speeds"),
        ("[[classes]]\nweight = 1.0", "mix.toml: classes.0.sizes: Field required"),
        ("[[classes]]\nsizes = [1, 2]\nsize_weights = [1.0]", "mix of tasks: classes"),
    ],
)
def test_a_mix_that_is_wrong_is_told_by_its_key(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "mix.toml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_mix(tmp_path / "mix.toml", None)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), min_size=1, max_size=5))
def test_seeds_are_read_as_they_are_written(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}" if more else str(first) for first, more in ranges)
    assert list(parse_seeds(text)) == [seed for first, more in ranges for seed in range(first, first + more + 1)]


def test_preemption_needs_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text("restart_s = 5.0\n" + MIX)
    source = TaskSource(str(tmp_path / "mix.toml"), TaskFormat.MIX, "1x8")
    pair = (parse_pair("sjf+best-fit"),)
    with_checkpoints = play_all(TaskReplay(source, pair, DispatchRules(preempt=True)), 1).runs[0].figures
    (tmp_path / "plain.toml").write_text(MIX)
    plain = (
        play_all(
            TaskReplay(replace(source, trace=str(tmp_path / "plain.toml")), pair, DispatchRules(preempt=True)), 1
        )
        .runs[0]
        .figures
    )
    assert with_checkpoints.preemptions > 0
    assert plain.preemptions == 0
