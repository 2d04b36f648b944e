"""Speeds by measurement, against the published files read in another way."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.speeds import read_deepshare, read_samples
from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.speeds import MeasuredRun, Measurements, even_speeds, measured_kinds, speed_table
from mirage.domain.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared


def test_the_published_table_is_kept_entry_by_entry(shared: Path) -> None:
    measured = read_deepshare(shared / "yardsticks" / "deepshare")
    row = {(run.model, run.devices, run.spread): number for number, run in enumerate(measured.runs)}
    assert len(row) == 54  # 36 measured, and 18 within a node
    with (shared / "yardsticks/deepshare/shared_thp_ratio.csv").open() as file:
        for one in csv.DictReader(file):
            for other, ratio in one.items():
                if other:
                    assert measured.ratio[row[_key(one[""])], row[_key(other)]] == float(ratio)


def _key(label: str) -> tuple[str, int, int]:
    model, devices, spread = label.split(",")
    return model, int(devices), int(spread)


def test_within_a_node_nobody_is_touched_and_touches_nobody(shared: Path) -> None:
    measured = read_deepshare(shared / "yardsticks" / "deepshare")
    inside = [number for number, run in enumerate(measured.runs) if run.spread == 1]
    assert len(inside) == 18
    assert (measured.ratio[inside] == 1).all()
    assert (measured.ratio[:, inside] == 1).all()


def test_speeds_are_relative_to_the_narrowest_spread(shared: Path) -> None:
    measured = read_deepshare(shared / "yardsticks" / "deepshare")
    tasks = task_table(("a", "b"), devices=[8, 2], model=["Transformer-XL", ""])
    speeds = speed_table(measured, tasks, parse_pool("8x8"))
    # 114.94 on 2 nodes, 69.26 on 4, 41.73 on 8: the next wider stands for 3, 5, 6 and 7 nodes.
    wanted = np.array([114.94, 114.94, 69.26, 69.26, 41.73, 41.73, 41.73, 41.73]) / 114.94
    assert speeds.alone[speeds.row[0, 0]] == pytest.approx(wanted)
    assert (speeds.alone[speeds.row[1, 0]] == 1).all()
    assert speeds.interferes


def test_the_samples_are_an_hour_at_the_mean_speed_on_two_and_four_nodes(shared: Path) -> None:
    folder = shared / "yardsticks" / "deepshare"
    measured = read_deepshare(folder)
    for (model, devices), samples in read_samples(folder).items():
        runs = [
            measured.throughput[number]
            for number, run in enumerate(measured.runs)
            if (run.model, run.devices) == (model, devices) and run.spread in {2, 4}
        ]
        assert samples / float(np.mean(runs)) == pytest.approx(3600, rel=2e-4)


def test_a_size_that_was_not_measured_takes_the_nearest() -> None:
    measured = _measurements(("m", 2, 1, ""), ("m", 8, 1, ""), throughput=[1.0, 3.0])
    assert measured.fit("m", 3, 1, "any") == 0
    assert measured.fit("m", 4, 1, "any") == 0  # as near to both: the smaller
    assert measured.fit("m", 5, 1, "any") == 1
    assert measured.fit("m", 64, 9, "any") == 1


def test_a_kind_that_was_not_measured_is_refused_unless_the_task_excludes_it() -> None:
    measured = _measurements(("m", 1, 1, "V100"), throughput=[2.0])
    pool = parse_pool("1x1:v100,1x1:k80")
    tasks = task_table(("t",), model=["m"])
    with pytest.raises(ConfigError, match=r"task 't' may run on 'k80', but 'm' was measured only on V100"):
        speed_table(measured, tasks, pool)
    assert measured_kinds(measured, tasks, pool).tolist() == [2**64 - 1 - 2]
    narrowed = task_table(("t",), model=["m"], kinds=measured_kinds(measured, tasks, pool))
    assert speed_table(measured, narrowed, pool).alone[1] == 1.0


def test_an_unknown_model_is_refused_with_those_that_are_known() -> None:
    measured = _measurements(("m", 1, 1, ""), throughput=[2.0])
    with pytest.raises(ConfigError, match=r"no speeds of model 'vgg' \(measured: m"):
        speed_table(measured, task_table(("t",), model=["vgg"]), parse_pool("1x1"))


def test_beyond_the_fewest_nodes_a_gang_is_spread() -> None:
    runs = (MeasuredRun("m", 16, 1), MeasuredRun("m", 16, 2))
    measured = Measurements("here", runs, np.array([4.0, 1.0]), np.ones((2, 2)), beyond_fewest=True)
    speeds = speed_table(measured, task_table(("t",), devices=16, model=["m"]), parse_pool("4x8"))
    assert speeds.alone[speeds.row[0, 0]].tolist() == [1.0, 1.0, 0.25, 0.25]  # 16 devices are on 2 nodes at best


def test_even_speeds_know_no_neighbours() -> None:
    speeds = even_speeds(task_table(("a", "b"), model=["x", "y"]), parse_pool("1x1:k80,1x1:v100"))
    assert not speeds.interferes
    assert speeds.alone[speeds.row].tolist() == [[[1.0], [1.0]]] * 2


def test_a_ratio_that_is_no_number_is_shown_with_its_place(tmp_path: Path, shared: Path) -> None:
    for name in ("isolated_thp.csv", "shared_thp_ratio.csv"):
        text = (shared / "yardsticks/deepshare" / name).read_text()
        (tmp_path / name).write_text(text.replace("0.995", "oops", 1))
    with pytest.raises(TraceError, match=r"shared_thp_ratio.csv:2: MobileNetV3,2,2: 'oops' is not a number"):
        read_deepshare(tmp_path)


def _measurements(*runs: tuple[str, int, int, str], throughput: list[float]) -> Measurements:
    count = len(runs)
    return Measurements(
        "here", tuple(MeasuredRun(*run) for run in runs), np.array(throughput), np.ones((count, count))
    )
