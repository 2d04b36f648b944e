"""Users' input to task scheduling: task files, traces of tasks, tables of speeds, pools."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow
from fuzzing import Beside, Target
from pyarrow import parquet

from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource, parse_pool, read_source, read_speeds
from mirage.allocation.ddl.formats.speeds import read_deepshare, read_samples
from mirage.allocation.engine.allocation_table import given_speeds
from mirage.allocation.engine.entries import AttemptResult, Ended, PoolSeen, SpeedSeen, Starting, spell
from mirage.allocation.engine.journal import JournalReader, StateFolder
from mirage.allocation.engine.task_interface import NoReport, read_report
from mirage.allocation.engine.taskfile import read_plan

if TYPE_CHECKING:
    from pathlib import Path

TASKS = b"""[defaults]
memory = "4G"
environment = {A = "1"}
[[task]]
id = "prepare"
command = ["./prepare", "x"]
devices = 0
cpus = 2
deadline = 2026-12-24T18:00:00Z
[[task]]
id = "train"
script = '''
srun ./train
'''
after = ["prepare"]
devices = 4
max_nodes = 2
ranks = "device"
kinds = ["a100", "gpu:h100"]
expected = "2h"
time_limit = "1-00:00:00"
checkpoint = {signal = "USR1", grace = "90s", restart = 30}
[[task]]
id = "part"
command = ["./serve"]
share = 0.5
deadline = 3600
retries = 3
output = "out/%.log"
"""
MURI = b"""job_id,num_gpu,submit_time,iterations,model_name,iteration_time
1,4,0,1000,bert,120
2,1,5000,10,resnet18,3.5
3,16,9000,1,own,1
"""
PODS = b"""name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time
p0,3152,1024,1,500,V100M16|V100M32,LS,10,100,20
p1,1000,512,0,0,,BE,12,50,
p2,8000,4096,2,1000,,LS,15,500,15
"""
NODES = b"sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,V100M16\nn1,96000,786432,8,V100M32\nn2,8,10,0,\n"
MIX = b"""count = 20
median_s = 3600.0
arrival = "poisson"
load = 0.8
tenants = 3
[[classes]]
model = "bert"
sizes = [1, 2, 4]
size_weights = [0.5, 0.3, 0.2]
[[classes]]
sizes = [8]
"""
MEASURED = {
    "version": 1,
    "reference_kind": "gpu",
    "runs": [
        {"model": "bert", "devices": 1, "spread": 1, "kind": "gpu", "throughput": 10.5, "seconds": 60.0},
        {"model": "bert", "devices": 2, "spread": 1, "kind": "gpu", "throughput": 19.0},
        {"model": "gpt2", "devices": 4, "spread": 2, "kind": "gpu", "throughput": 3.0},
    ],
    "beside": [[0, 1, 0.8], [1, 0, 0.9]],
}
GAVEL = {
    "v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 12.5, "('A3C', 1)": [5.0, 3.0]}},
    "v100_unconsolidated": {"('ResNet-18 (batch size 16)', 2)": {"null": 20.0}},
    "k80": {"('ResNet-18 (batch size 16)', 1)": {"null": 0.0}},
}
JOBS = {"0": {"model": "bert", "gpu_demand": 4, "total_samples_to_train": 1e6}}
RUNS = (("bert", 4, 1), ("bert", 4, 2), ("gpt2", 8, 2))


def sheet(columns: list[str], rows: list[list[object]]) -> bytes:
    into = io.StringIO()
    csv.writer(into).writerows([columns, *rows])
    return into.getvalue().encode()


LABELS = [f"{model},{devices},{nodes}" for model, devices, nodes in RUNS]
ALONE = sheet(["", "isol_thp"], [[label, 10.0] for label in LABELS])
RATIOS = sheet(["", *LABELS], [[label, 0.9, 0.8, 1.0] for label in LABELS])
SAMPLES = sheet(["", "4", "8"], [["bert", 1e6, 2e6], ["gpt2", 3e5, 4e5]])


def parquet_of(document: Any) -> bytes:
    into = io.BytesIO()
    parquet.write_table(pyarrow.table(document), into)
    return into.getvalue()


def source(format: TaskFormat, pool: str = "2x8", speeds: str = "") -> Any:  # noqa: A002 - as the reader has it
    """Tasks, and how fast they are, as a policy is given them."""

    def read(path: Path) -> None:
        beside = path.parent
        read_source(TaskSource(str(path), format, pool.format(beside), speeds.format(beside)), 1)

    return read


def plan(path: Path) -> None:
    for task in read_plan(path).tasks:
        assert task.command
        assert task.memory_mb >= 0


def journal(path: Path) -> None:
    for life, entry in JournalReader(StateFolder(path.parent.parent)).news():
        assert life == "a"
        spell(entry)


def progress(path: Path) -> None:
    found = read_report(path)
    assert found is None or (found.done >= 0 and (found.part is None or 0 <= found.part <= 1))


ENTRIES = "".join(
    f"{spell(entry)}\n"
    for entry in (
        PoolSeen(1.0, None, {"n1": [(0, "gpu:a100"), (1, "gpu:a100")]}),
        Starting(2.0, "train", 1, {"n1": [0, 1]}, 1.0),
        SpeedSeen(3.0, "train", 1, ("bert", 2, 1, "gpu"), [("gpt2", 1, 1, "gpu")], 60.0, 1000.0),
        Ended(4.0, "train", 1, AttemptResult.FAILED, 1, "exit code 1", 2.0),
    )
)

TARGETS = (
    Target("task file", Beside(plan, "tasks.toml"), (TASKS,), names="tasks.toml"),
    Target("tasks, Muri", Beside(source(TaskFormat.MURI), "trace.csv"), (MURI,), names="trace.csv"),
    Target(
        "tasks, openb",
        Beside(source(TaskFormat.OPENB, pool="{}/nodes.csv"), "pods.csv", {"nodes.csv": NODES}),
        (PODS,),
        names="pods.csv",
    ),
    Target(
        "nodes, openb",
        Beside(
            lambda path: read_source(TaskSource(str(path.parent / "pods.csv"), TaskFormat.OPENB, str(path)), 1),
            "nodes.csv",
            {"pods.csv": PODS},
        ),
        (NODES,),
    ),
    Target(
        "tasks, parquet",
        Beside(source(TaskFormat.JOBS), "jobs.parquet"),
        (
            parquet_of({"submit_s": [5, 9], "run_s": [60, None], "gpus": [1, 8], "user": ["a", None]}),
            parquet_of(
                {"job_id": ["x", "y"], "submit_s": [5, 9], "run_s": [6, 7], "gpus": [0, 1], "cpus": [1, 2]}
            ),
        ),
        names="jobs.parquet",
    ),
    Target("tasks, mix", Beside(source(TaskFormat.MIX), "mix.toml"), (MIX,)),
    Target(
        "tasks, mix of what was measured",
        Beside(
            source(TaskFormat.MIX, speeds="measured:{}/speeds.json"),
            "mix.toml",
            {"speeds.json": json.dumps(MEASURED).encode()},
        ),
        (b'count = 5\narrival = "bursts"\n',),
    ),
    Target(
        "tasks, DeepShare",
        Beside(
            source(TaskFormat.DEEPSHARE, speeds="deepshare:{}"),
            "jobs.json",
            {"isolated_thp.csv": ALONE, "shared_thp_ratio.csv": RATIOS},
        ),
        (json.dumps(JOBS).encode(),),
        names="jobs.json",
    ),
    Target(
        "speeds, DeepShare",
        Beside(read_deepshare, "isolated_thp.csv", {"shared_thp_ratio.csv": RATIOS}, folder=True),
        (ALONE,),
    ),
    Target(
        "ratios, DeepShare",
        Beside(read_deepshare, "shared_thp_ratio.csv", {"isolated_thp.csv": ALONE}, folder=True),
        (RATIOS,),
        names="shared_thp_ratio.csv",
    ),
    Target(
        "samples, DeepShare",
        Beside(read_samples, "total_samples_trained.csv", folder=True),
        (SAMPLES,),
        names="total_samples_trained.csv",
    ),
    Target(
        "speeds, Gavel",
        Beside(lambda path: read_speeds(f"gavel:{path}"), "gavel.json"),
        (json.dumps(GAVEL).encode(),),
        names="gavel.json",
    ),
    Target(
        "speeds, measured",
        Beside(lambda path: given_speeds(f"measured:{path}", parse_pool("2x4,1x8:a100")), "speeds.json"),
        (json.dumps(MEASURED).encode(),),
        names="speeds.json",
    ),
    Target(
        "speeds, measured, changed",
        lambda document: Beside(lambda path: read_speeds(f"measured:{path}"), "speeds.json")(json.dumps(document)),
        (MEASURED,),
        names="speeds.json",
    ),
    Target(
        "speeds, Gavel, changed",
        lambda document: Beside(lambda path: read_speeds(f"gavel:{path}"), "gavel.json")(json.dumps(document)),
        (GAVEL,),
        names="gavel.json",
    ),
    Target("pool", parse_pool, ("8x8", "4x8:v100@2.5,2x4:k80@0.45")),
    Target("journal of tasks", Beside(journal, "journal/a.jsonl"), (ENTRIES.encode(),), names="a.jsonl"),
    Target("progress of a task", Beside(progress, "t.1.progress"), (b"10 100\n", b"3/4\n", b"7\n"), (NoReport,)),
)
