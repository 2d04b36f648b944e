"""DeepShare's traces: one JSON object of jobs that are all submitted at 0, with sizes in samples to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.allocation.ddl.formats.result import TaskTrace
from mirage.allocation.ddl.formats.rows import finite, read_json
from mirage.allocation.ddl.formats.table import task_table
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.speeds import Measurements
    from mirage.domain.pool import Pool


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
