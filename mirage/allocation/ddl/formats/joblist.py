"""Jobs of Philly and Helios in parquet: ``submit_s``, ``run_s``, ``gpus``, and ``cpus``, ``user``, ``partition``.

Their models and checkpoints are unknown. A job runs on as few nodes as it fits on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.result import TaskTrace, fewest_nodes
from mirage.allocation.ddl.formats.rows import read_bytes
from mirage.allocation.ddl.formats.table import task_table
from mirage.domain.errors import TraceError
from mirage.trace.parquet_frame import Frame

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.domain.pool import Pool

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
