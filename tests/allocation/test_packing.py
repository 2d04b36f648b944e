"""How full pools are made, against what Weng et al. published of the same tasks and nodes."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from mirage.allocation.ddl.formats.traces import read_openb
from mirage.allocation.ddl.packing import draw, pack, pack_all, summarise
from mirage.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.formats.table import TaskTrace

PUBLISHED = {"random": ("Random", 0.5), "best-fit-all": ("BestFit", 0.5), "fgd": ("FGD", 0.3)}
"""Names there, and how far off the mean of four seeds may be: three of its standard errors, as published."""


@pytest.fixture(scope="module")
def openb(shared: Path) -> TaskTrace:
    folder = shared / "yardsticks" / "openb"
    return read_openb(folder / "openb_pod_list_default.csv", folder / "openb_node_list_gpu_node.csv")


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_full_as_published(openb: TaskTrace, shared: Path, name: str) -> None:
    called, tolerance = PUBLISHED[name]
    with (shared / "yardsticks/openb/expected_allocation_default.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == called]
    published = {int(row["requested_pct"]): float(row["gpu_allocation_pct_mean"]) for row in rows}
    packed = pack_all(openb.tasks, openb.pool, [name], range(42, 46), 130, 1)
    for fill in summarise(packed, 130)[name]:
        assert fill.mean == pytest.approx(published[fill.mark], abs=tolerance)


def test_foresight_fills_more_than_fgd_does(openb: TaskTrace) -> None:
    ahead, fgd = (pack(openb.tasks, openb.pool, name, 44, 130) for name in ("foresight", "fgd"))
    assert all(a >= b for a, b in zip(ahead.allocated, fgd.allocated, strict=True))
    assert ahead.allocated[3] > 95.8


def test_a_seed_gives_all_tasks_and_enough_more_and_every_node(openb: TaskTrace) -> None:
    tasks, pool = draw(openb.tasks, openb.pool, 7, 130)
    asked = (tasks.devices * tasks.share).sum()
    assert 0 <= asked - 1.3 * len(pool.device_node) < 8
    assert {name.partition("#")[0] for name in tasks.name} == set(openb.tasks.name)
    assert len(set(tasks.name)) == len(tasks)
    assert sorted(pool.node_names) == sorted(openb.pool.node_names)
    assert (np.diff(pool.device_node) >= 0).all()
    before = dict(zip(openb.pool.node_names, zip(openb.pool.cpus, openb.pool.memory_mb, strict=True), strict=True))
    assert before == dict(zip(pool.node_names, zip(pool.cpus, pool.memory_mb, strict=True), strict=True))
    for one in (openb.pool, pool):
        kinds = {(one.node_names[n], one.kinds[k]) for n, k in zip(one.device_node, one.device_kind, strict=True)}
        assert len(kinds) == len(set(one.device_node.tolist()))
    assert draw(openb.tasks, openb.pool, 7, 130)[0].name == tasks.name
    assert draw(openb.tasks, openb.pool, 8, 130)[0].name != tasks.name


NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1000,2,T4\nb,8000,1000,2,T4\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p,1000,10,1,1000,,LS,Running,0,9,0\nq,1000,10,1,500,,LS,Running,0,9,0\n"
)


def test_the_command_writes_table_and_figures(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    options = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv"), "--workers", "1"]
    told = CliRunner().invoke(app, ["allocation", "pack", *options, "--placer", "best-fit,fgd", "--seeds", "1-3"])
    assert told.exit_code == 0, told.output
    assert "best-fit" in told.output
    told = CliRunner().invoke(app, ["allocation", "pack", *options, "--seeds", "5", "--json"])
    found = json.loads(told.output)
    assert found["marks"] == [80, 90, 95, 100, 110, 120, 130]
    assert set(found["placers"]) == {"best-fit", "fgd", "foresight"}
    assert found["placers"]["fgd"]["mean"] == found["placers"]["fgd"]["seeds"]["5"]
    assert found["placers"]["fgd"]["mean"][-1] in (87.5, 100.0)


def test_an_unknown_placer_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    options = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    told = CliRunner().invoke(app, ["allocation", "pack", *options, "--placer", "worst"])
    assert told.exit_code != 0
    assert "worst" in str(told.exception or told.output)
