"""Task traces as published: what is in the tables, counted in another way; and files that are wrong."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.speeds import read_deepshare, read_gavel
from mirage.allocation.ddl.formats.table import fitting, playable, task_table
from mirage.allocation.ddl.formats.traces import read_deepshare_trace, read_joblist, read_muri, read_openb, restart
from mirage.allocation.ddl.speeds import measured_kinds, speed_table
from mirage.domain.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

MURI = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"
POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
NODE = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,4096,2,T4\n"


@pytest.mark.shared
def test_muri_holds_the_device_hours_of_the_file(shared: Path) -> None:
    path = shared / "yardsticks" / "muri" / "trace1.csv"
    trace = playable(read_muri(path, parse_pool("8x8")))
    with path.open() as file:
        rows = list(csv.DictReader(file))
    told = (
        sum(int(row["num_gpu"]) * int(row["iterations"]) * int(row["iteration_time"]) for row in rows) * 1.015e-3
    )
    assert (trace.rows, len(trace.tasks), trace.left_out) == (len(rows), 1494, ())
    assert float((trace.tasks.work * trace.tasks.devices).sum()) == pytest.approx(told)
    assert trace.tasks.submit[1] == 201694.0
    assert trace.tasks.max_nodes.max() == 4  # 32 GPUs on nodes of 8
    assert (restart("a2c", 8), restart("a2c", 3), restart("unheard-of", 1)) == (46.0, 39.0, 10.0)


@pytest.mark.shared
def test_openb_has_the_devices_and_shares_of_the_facts(shared: Path) -> None:
    folder = shared / "yardsticks" / "openb"
    trace = read_openb(folder / "openb_pod_list_default.csv", folder / "openb_node_list_gpu_node.csv")
    tasks, pool = trace.tasks, trace.pool
    assert (len(pool.node_names), len(pool.device_node), len(tasks)) == (1213, 6212, 8152)
    assert ((tasks.share < 1).sum(), (tasks.devices > 1).sum(), (tasks.devices == 0).sum()) == (3078, 75, 1088)
    assert playable(trace).left_out == (("without a run time above 0", 897),)
    assert np.bincount(pool.device_kind).sum() == 6212
    assert set(pool.kinds) == {"P100", "T4", "G2", "G3", "V100M16", "V100M32", "A10"}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "tasks", "large"), [("philly_jobs", 82247, 82247, 3), ("helios_15k", 15000, 10796, 112)]
)
def test_job_lists_say_which_rows_are_no_tasks(shared: Path, name: str, rows: int, tasks: int, large: int) -> None:
    pytest.importorskip("pyarrow")
    trace = read_joblist(shared / "traces" / f"{name}.parquet", parse_pool("8x8"))
    assert (trace.rows, len(trace.tasks)) == (rows, tasks)
    assert dict(playable(trace).left_out)["that do not fit into the empty pool"] == large
    assert rows == tasks + sum(count for _, count in trace.left_out)


@pytest.mark.shared
def test_gavel_speeds_are_relative_to_a_consolidated_v100(shared: Path) -> None:
    measured = read_gavel(shared / "yardsticks/gavel/simulation_throughputs.json.gz")
    pool = parse_pool("2x8:v100,2x8:k80")
    tasks = task_table(("t",), devices=8, model=["ResNet-18 (batch size 16)"])
    speeds = speed_table(measured, tasks, pool)
    # As the source: 382.5974 and 64.40995 on 8 V100, 26.91842 and 32.28085 on 8 K80.
    wanted = np.array([[382.5974, 64.40995], [26.91842, 32.28085]]) / 382.5974
    assert speeds.alone[speeds.row[0, :, :2]] == pytest.approx(wanted, rel=1e-5)
    assert not speeds.interferes
    unfit = task_table(("t",), devices=2, model=["ResNet-50 (batch size 128)"])  # 0 on K80
    assert measured_kinds(measured, unfit, pool).tolist() == [2**64 - 1 - 2]


@pytest.mark.shared
def test_a_deepshare_trace_takes_an_hour_at_average_speed(shared: Path, tmp_path: Path) -> None:
    measured = read_deepshare(shared / "yardsticks" / "deepshare")
    path = tmp_path / "trace0"
    path.write_text(
        json.dumps({"0": {"model": "MoE", "gpu_demand": 8, "total_samples_to_train": 130785.648},
                    "1": {"model": "FSDP", "gpu_demand": 2, "total_samples_to_train": 61637.398}})
    )  # fmt: skip
    trace = read_deepshare_trace(path, parse_pool("4x8"), measured)
    assert trace.tasks.work == pytest.approx([130785.648 / 45.18, 61637.398 / 17.12])
    path.write_text('{"0": {"model": "MoE", "gpu_demand": 3, "total_samples_to_train": 1}}')
    with pytest.raises(TraceError, match=r"trace0: 0.gpu_demand: no measurements for 3 \(measured: 2, 4, 8"):
        read_deepshare_trace(path, parse_pool("4x8"), measured)
    path.write_text('{"0": {}, "0": {}}')
    with pytest.raises(TraceError, match="duplicate name '0'"):
        read_deepshare_trace(path, parse_pool("4x8"), measured)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "job_id,num_gpu\n1,2\n",
            r"t.csv:1: submit_time: no such column; the columns are job_id, num_gpu",
        ),
        (MURI, r"t.csv: no rows below the header line"),
        (MURI + "1,2,0,5,bert\n", r"t.csv:2: 5 cells, but 6 columns"),
        (MURI + "1,2,0,5,bert,100\n2,x,0,5,bert,100\n", r"t.csv:3: num_gpu: 'x' is not a number"),
        (MURI + "1,0,0,5,bert,100\n", r"t.csv:2: num_gpu: 0 must be a finite number of at least 1"),
        (MURI + "1,1.5,0,5,bert,100\n", r"t.csv:2: num_gpu: 1.5 must be an integer from 1 to"),
        (MURI + "1,1,nan,5,bert,100\n", r"t.csv:2: submit_time: nan must be a finite number of at least 0"),
        (MURI + "1,1,0,5,bert,100\n\n1,1,0,5,bert,100\n", r"t.csv:4: job_id: '1' is also in line 2"),
    ],
)
def test_a_wrong_file_is_told_by_line_and_column(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TraceError, match=told):
        read_muri(tmp_path / "t.csv", parse_pool("8x8"))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("p,1,1,2,500,,LS,0,9,0", "pods.csv:2: gpu_milli: 500 of each of 2 GPUs; only one GPU can be shared"),
        ("p,1,1,1,0,,LS,0,9,0", "pods.csv:2: gpu_milli: 0 of each of 1 GPUs"),
        ("p,1,1,1,1000,A10|G2,LS,0,9,0", "pods.csv:2: gpu_spec: no node has a GPU of 'A10|G2' (available: T4)"),
    ],
)
def test_a_pod_that_makes_no_sense_is_refused(tmp_path: Path, row: str, told: str) -> None:
    (tmp_path / "pods.csv").write_text(POD + row + "\n")
    (tmp_path / "nodes.csv").write_text(NODE)
    with pytest.raises(TraceError, match=re.escape(told)):
        read_openb(tmp_path / "pods.csv", tmp_path / "nodes.csv")


def test_a_gzipped_file_is_read_too_and_a_damaged_one_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((MURI + "7,2,1000,10,bert,100\n").encode()))
    assert read_muri(path, parse_pool("8x8")).tasks.name == ("job7",)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TraceError, match="damaged gzip file"):
        read_muri(path, parse_pool("8x8"))


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(MURI + "1,128,0,5,bert,100\n")
    with pytest.raises(TraceError, match="none of its 1 rows is a task for this pool: 1 that do not fit"):
        playable(read_muri(tmp_path / "t.csv", parse_pool("8x8")))


CELLS = st.sampled_from(
    ["", "0", "1", "-1", "1e400", "nan", "2147483648", "1.5", "a", '"', "T4", "é", "1000", "9" * 400]
)


@given(
    rows=st.lists(st.lists(CELLS, min_size=4, max_size=11), max_size=4), wanted=st.sampled_from([MURI, POD, NODE])
)
def test_whatever_is_in_a_file_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], wanted: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    width = wanted.splitlines()[0].count(",") + 1
    text = wanted + "".join(",".join((row * width)[:width]) + "\n" for row in rows)
    (folder / "t.csv").write_text(text)
    (folder / "nodes.csv").write_text(NODE if wanted is not NODE else text)
    (folder / "t.json").write_text(json.dumps({"v100": {f"('m', {row[0]})": {"null": row[1]} for row in rows}}))
    for read in (
        lambda: read_muri(folder / "t.csv", parse_pool("2x4")),
        lambda: read_openb(folder / "t.csv", folder / "nodes.csv"),
        lambda: read_gavel(folder / "t.json"),
    ):
        with contextlib.suppress(TraceError):
            read()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("[1]", "must be an object of kinds of GPU"),
        ('{"v100": {"(\'m\', 1)": {"null": -1}}}', "v100.*'null' must be a throughput of at least 0"),
        ('{"v100": {"(\'m\', 1)": {"null": ' + "9" * 400 + "}}}", "'null' must be a throughput of at least 0"),
        ('{"v100": {"m": {"null": 1}}}', r"the job must be \('MODEL', GPUS\)"),
        ('{"v100": {}, "v100": {}}', "duplicate name 'v100'"),
        ("{", "t.json:1: invalid JSON"),
    ],
)
def test_throughputs_that_are_wrong_are_told_by_their_key(tmp_path: Path, document: str, told: str) -> None:
    (tmp_path / "t.json").write_text(document)
    with pytest.raises(TraceError, match=told):
        read_gavel(tmp_path / "t.json")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(MURI.replace("iterations", "num_gpu") + "1,1,0,5,bert,100\n")
    with pytest.raises(TraceError, match=r"t.csv:1: num_gpu: duplicate column name"):
        read_muri(tmp_path / "t.csv", parse_pool("8x8"))


@pytest.mark.parametrize("text", ["", "8", "0x8", "8x0", "8x8:", "8x8@", "8x8:a@-1", "8x8,,", "8*8"])
def test_a_pool_that_is_misspelt_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not NODESxDEVICES"):
        parse_pool(text)


def test_a_pool_of_two_kinds() -> None:
    pool = parse_pool("2x4:v100@2.5, 1x8:k80@0.45,1x2:v100@2.5")
    assert (pool.kinds, pool.price.tolist()) == (("v100", "k80"), [2.5, 0.45])
    assert np.bincount(pool.device_node).tolist() == [4, 4, 8, 2]
    assert pool.device_kind.tolist() == [0] * 8 + [1] * 8 + [0] * 2
    assert pool.first_device.tolist() == [0, 4, 8, 16, 18]
    with pytest.raises(ConfigError, match="'v100' has two prices"):
        parse_pool("1x1:v100@1,1x1:v100@2")


@given(
    devices=st.integers(0, 12),
    max_nodes=st.integers(1, 4),
    cpus=st.integers(0, 40),
    kinds=st.integers(1, 3),
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_fitting_agrees_with_trying_every_spread(
    devices: int, max_nodes: int, cpus: int, kinds: int, shape: list[int]
) -> None:
    pool = parse_pool(",".join(f"1x{held}:{'ab'[row % 2]}" for row, held in enumerate(shape)))
    pool.cpus[:] = 10
    tasks = task_table(("t",), devices=devices, max_nodes=max_nodes, cpus=cpus, kinds=kinds)

    def room(node: int, left: int, nodes: int) -> bool:
        if left == 0:
            return True
        if node == len(shape) or nodes == 0:
            return False
        usable = [
            row
            for row in range(len(pool.device_node))
            if pool.device_node[row] == node and kinds >> int(pool.device_kind[row]) & 1
        ]
        most = min(left, len(usable))
        return any(
            room(node + 1, left - part, nodes - (part > 0))
            for part in range(most + 1)
            if math.ceil(part * cpus / devices) <= 10
        )

    wanted = cpus <= 10 if devices == 0 else room(0, devices, max_nodes)
    assert bool(fitting(tasks, pool)[0]) == wanted
