"""Muri's traces (Rivendile/Muri, ``simulator/trace-data``): jobs derived from Philly's.

``submit_time`` and ``iteration_time`` are milliseconds. Its simulator runs a job for iterations times
iteration time times 1.015, and knows no other speeds; a job is on as few nodes as it fits on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.result import TaskTrace, fewest_nodes
from mirage.allocation.ddl.formats.rows import read_sheet
from mirage.allocation.ddl.formats.table import task_table

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.formats.rows import Row
    from mirage.domain.pool import Pool

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


def _work(row: Row) -> float:
    return row.number("iterations") * row.number("iteration_time") * OVERHEAD / 1000
