"""Build a table of tasks from the columns of a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage.domain.jobtable import Names
from mirage.domain.task import ANY_KIND, TaskTable


def task_table(name: tuple[str, ...], **columns: Any) -> TaskTable:
    """A table by order of submission (ties as given), with ``TaskTable``'s columns as far as given.

    A column may be one value for all tasks. Defaults: submitted at 0, one whole device of any kind, as many nodes
    as devices, no CPUs and memory, unknown work, no estimate but the work, no checkpoint, no deadline, no model,
    no tenant.
    """
    count = len(name)
    devices = _column(columns.get("devices", 1), np.int32, count)
    work = _column(columns.get("work", np.nan), np.float64, count)
    table = TaskTable(
        name=name,
        submit=_column(columns.get("submit", 0.0), np.float64, count),
        devices=devices,
        share=_column(columns.get("share", 1.0), np.float64, count),
        kinds=_column(columns.get("kinds", ANY_KIND), np.uint64, count),
        max_nodes=_column(columns.get("max_nodes", np.maximum(devices, 1)), np.int32, count),
        cpus=_column(columns.get("cpus", 0), np.int32, count),
        memory_mb=_column(columns.get("memory_mb", 0), np.int64, count),
        work=work,
        expected=_column(columns.get("expected", work), np.float64, count),
        restart=_column(columns.get("restart", np.nan), np.float64, count),
        deadline=_column(columns.get("deadline", np.nan), np.float64, count),
        model=_names(columns.get("model"), count),
        tenant=_names(columns.get("tenant"), count),
    )
    return table.take(np.argsort(table.submit, kind="stable"))


def _column(values: Any, dtype: type[np.generic], count: int) -> Any:
    return np.broadcast_to(np.asarray(values, dtype=dtype), (count,)).copy()


def _names(values: Any, count: int) -> Names:
    if values is None:
        return Names.absent(count)
    return values if isinstance(values, Names) else Names.encode([str(value) for value in values])
