"""Published traces of tasks.

DeepShare's: one JSON object of jobs that are all submitted at 0, with sizes in samples to train.

Philly and Helios in parquet: ``submit_s``, ``run_s``, ``gpus``, and ``cpus``, ``user``, ``partition``. Their
models and checkpoints are unknown. A job runs on as few nodes as it fits on.

Muri's (Rivendile/Muri, ``simulator/trace-data``): jobs derived from Philly's. ``submit_time`` and
``iteration_time`` are milliseconds. Its simulator runs a job for iterations times iteration time times 1.015,
and knows no other speeds; a job is on as few nodes as it fits on.

Alibaba's openb (clusterdata ``cluster-trace-gpu-v2023``): pods that need parts of a GPU, one, or several. CPUs
are counted in thousandths, in the pool and in the tasks alike: pods ask for 3152 of them. A pod's GPUs are on
one node. ``gpu_spec`` lists the accepted models of GPU, joined by ``|``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.ddl.formats.rows import finite, read_bytes, read_json, read_sheet
from mirage.allocation.ddl.formats.table import TaskTrace, fewest_nodes, task_table
from mirage.datafiles import Frame
from mirage.domain.errors import TraceError
from mirage.domain.pool import ANY_KIND, Pool

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.allocation.ddl.formats.rows import DataRow
    from mirage.allocation.ddl.speeds import Measurements

OVERHEAD = 1.015
"""The simulator's factor on every iteration's time."""

_SIZES = (1, 2, 4, 8, 16, 32)
_RESTART_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10,) * 6,
    "gpt2": (10,) * 6,
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Start-up seconds of a model by number of GPUs (``_SIZES``), from its simulator."""
_OTHER_RESTART_S = 10


def read_muri(path: str | Path, pool: Pool) -> TaskTrace:
    """Read every row as a task; raises ``TraceError`` for the first invalid row."""
    sheet = read_sheet(path)
    sheet.need("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")
    rows = sheet.rows
    devices = np.array([row.whole("num_gpu", least=1) for row in rows])
    models = [row.text("model_name") for row in rows]
    tasks = task_table(
        tuple(f"job{name}" for name in sheet.names("job_id")),
        submit=[row.number("submit_time") / 1000 for row in rows],
        devices=devices,
        max_nodes=fewest_nodes(devices, pool),
        work=[_work(row) for row in rows],
        restart=[restart(model, size) for model, size in zip(models, devices.tolist(), strict=True)],
        model=models,
    )
    return TaskTrace(str(path), tasks, pool, len(rows))


def restart(model: str, devices: int) -> float:
    """Seconds lost at each start of a model on a number of GPUs (that of the next larger known size)."""
    known = _RESTART_S.get(model)
    column = min(int(np.searchsorted(_SIZES, devices)), len(_SIZES) - 1)
    return float(known[column] if known else _OTHER_RESTART_S)


def _work(row: DataRow) -> float:
    return row.number("iterations") * row.number("iteration_time") * OVERHEAD / 1000


_NEEDED = ("submit_s", "run_s", "gpus")


def read_joblist(path: str | Path, pool: Pool) -> TaskTrace:
    """The jobs with GPUs. Raises ``TraceError``; ``MissingExtra`` without pyarrow."""
    frame = Frame(read_bytes(path), str(path))
    missing = next((name for name in _NEEDED if frame.find((name,)) is None), None)
    if missing:
        found = ", ".join(frame.names)
        raise TraceError(str(path), 0, missing, f"no such column; the columns are {found}")
    submit, run, gpus = (frame.numbers((name,)) for name in _NEEDED)
    _refuse_unknown(str(path), submit, "submit_s")
    names = frame.ids(("job_id",)) or [f"job{row}" for row in range(frame.rows)]
    _refuse_twice(str(path), names)
    tenants = frame.texts(("user",))
    tasks = task_table(
        tuple(names),
        submit=submit - submit.min(),
        devices=gpus,
        max_nodes=fewest_nodes(gpus, pool),
        cpus=np.maximum(frame.numbers(("cpus",), default=0), 0),
        work=np.where(run > 0, run, np.nan),
        tenant=tenants if (tenants.codes >= 0).any() else frame.texts(("partition",)),
    )
    trace = TaskTrace(str(path), tasks, pool, frame.rows)
    return trace.keep(tasks.devices > 0, "that need no GPU")


def _refuse_twice(path: str, names: list[str]) -> None:
    seen: dict[str, int] = {}
    for row, name in enumerate(names, start=1):
        if seen.setdefault(name, row) != row:
            raise TraceError(path, row, "job_id", f"{name!r} is also the id of row {seen[name]}")


def _refuse_unknown(path: str, values: NDArray[np.int64], column: str) -> None:
    bad = np.flatnonzero(values < 0)
    if len(bad):
        raise TraceError(path, int(bad[0]) + 1, column, "missing: the submission time of the job is unknown")


def read_deepshare_trace(path: str | Path, pool: Pool, measured: Measurements) -> TaskTrace:
    """Work is the number of samples over the throughput of speed 1. Raises ``TraceError``."""
    jobs = read_json(path)
    if not isinstance(jobs, dict) or not jobs:
        raise TraceError(str(path), 0, "", "must be an object of jobs by their numbers")
    read = [_job(str(path), name, job, measured) for name, job in jobs.items()]
    tasks = task_table(
        tuple(f"job{name}" for name in jobs),
        devices=[devices for _, devices, _ in read],
        work=[samples / measured.reference(model, devices) for model, devices, samples in read],
        model=[model for model, _, _ in read],
    )
    return TaskTrace(str(path), tasks, pool, len(tasks))


def _job(path: str, name: str, job: Any, measured: Measurements) -> tuple[str, int, float]:
    known = job if isinstance(job, dict) else {}
    model, devices = known.get("model"), known.get("gpu_demand")
    samples = finite(known.get("total_samples_to_train"))
    if model not in measured.models:
        known_models = ", ".join(measured.models)
        raise TraceError(path, 0, f"{name}.model", f"no measurements of {model!r} (measured: {known_models})")
    if type(devices) is not int or devices not in measured.sizes(model):
        sizes = ", ".join(map(str, measured.sizes(model)))
        raise TraceError(path, 0, f"{name}.gpu_demand", f"no measurements for {devices!r} (measured: {sizes})")
    if not samples:
        raise TraceError(path, 0, f"{name}.total_samples_to_train", "must be a number above 0")
    return model, devices, samples


_THOUSAND = 1000
_MOST_DEVICES = 1024
"""Most devices on one node: a typing error must not fill the memory."""


def read_openb(pods: str | Path, nodes: str | Path) -> TaskTrace:
    """All pods as tasks; those that were never scheduled have no run time. Raises ``TraceError``."""
    pool = read_openb_nodes(nodes)
    sheet = read_sheet(pods)
    sheet.need("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time")
    sheet.need("deletion_time", "scheduled_time", "qos")
    rows = sheet.rows
    created = np.array([row.number("creation_time") for row in rows])
    tasks = task_table(
        sheet.names("name"),
        submit=created - created.min(),
        devices=[row.whole("num_gpu") for row in rows],
        share=[_share(row) for row in rows],
        kinds=[_kinds(row, pool.kinds) for row in rows],
        max_nodes=1,
        cpus=[row.whole("cpu_milli") for row in rows],
        memory_mb=[row.whole("memory_mib") for row in rows],
        work=[_work_of_pod(row) for row in rows],
        tenant=[row.text("qos") for row in rows],
    )
    return TaskTrace(str(pods), tasks, pool, len(rows))


def read_openb_nodes(path: str | Path) -> Pool:
    """The nodes with GPUs; other nodes have no devices. Prices are unknown: each device costs 1."""
    sheet = read_sheet(path)
    sheet.need("sn", "cpu_milli", "memory_mib", "gpu", "model")
    rows = sheet.rows
    held = [row.whole("gpu", most=_MOST_DEVICES) for row in rows]
    models = [row.text("model") for row in rows]
    kinds = tuple(dict.fromkeys(model for model, count in zip(models, held, strict=True) if count))
    if len(kinds) > 64:
        raise rows[0].fault("model", f"{len(kinds)} kinds of GPU (at most 64)")
    device_node = np.repeat(np.arange(len(rows), dtype=np.int32), held)
    kind = [kinds.index(model) if count else 0 for model, count in zip(models, held, strict=True)]
    return Pool(
        node_names=sheet.names("sn"),
        cpus=np.array([row.whole("cpu_milli") for row in rows], dtype=np.int32),
        memory_mb=np.array([row.whole("memory_mib") for row in rows], dtype=np.int64),
        switch=np.zeros(len(rows), dtype=np.int32),
        device_node=device_node,
        device_index=np.concatenate([np.arange(count, dtype=np.int32) for count in held]),
        device_kind=np.repeat(np.array(kind, dtype=np.int32), held),
        island=device_node.copy(),
        kinds=kinds,
        price=np.ones(len(kinds)),
    )


def _share(row: DataRow) -> float:
    milli = row.whole("gpu_milli", most=_THOUSAND)
    count = row.whole("num_gpu")
    if count and not milli:
        raise row.fault("gpu_milli", f"0 of each of {count} GPUs")
    if count > 1 and milli != _THOUSAND:
        raise row.fault("gpu_milli", f"{milli} of each of {count} GPUs; only one GPU can be shared")
    return milli / _THOUSAND if count else 1.0


def _kinds(row: DataRow, known: tuple[str, ...]) -> int:
    """A mask; kinds that the pool does not have are ignored, but it must have one of them."""
    wanted = [kind for kind in row.text("gpu_spec").split("|") if kind]
    if not wanted:
        return int(ANY_KIND)
    mask = sum(1 << known.index(kind) for kind in set(wanted) if kind in known)
    if not mask:
        raise row.fault(
            "gpu_spec", f"no node has a GPU of {row.text('gpu_spec')!r} (available: {', '.join(known)})"
        )
    return mask


def _work_of_pod(row: DataRow) -> float:
    scheduled = row.number("scheduled_time", default=np.nan)
    return row.number("deletion_time") - scheduled
