"""DeepShare's own traces: one JSON object of jobs, all there at once, sized in samples to train."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from mirage.allocation.ddl.formats.result import TaskTrace
from mirage.allocation.ddl.formats.rows import read_bytes
from mirage.allocation.ddl.formats.table import task_table
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.speeds import Measurements
    from mirage.domain.pool import Pool


def read_deepshare_trace(path: str | Path, pool: Pool, measured: Measurements) -> TaskTrace:
    """Work is the samples over the throughput that counts as speed 1. Raises ``TraceError``."""
    try:
        jobs = json.loads(read_bytes(path), object_pairs_hook=_once)
    except ValueError as error:
        raise TraceError(str(path), getattr(error, "lineno", 0), "", f"no JSON: {error}") from error
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError(f"{name!r} is there twice")
        read[name] = value
    return read


def _job(path: str, name: str, job: Any, measured: Measurements) -> tuple[str, int, float]:
    known = job if isinstance(job, dict) else {}
    model, devices, samples = (known.get(key) for key in ("model", "gpu_demand", "total_samples_to_train"))
    if model not in measured.models:
        known_models = ", ".join(measured.models)
        raise TraceError(path, 0, f"{name}.model", f"{model!r} is none of those measured: {known_models}")
    if type(devices) is not int or devices not in measured.sizes(model):
        sizes = ", ".join(map(str, measured.sizes(model)))
        raise TraceError(path, 0, f"{name}.gpu_demand", f"{devices!r} is none of those measured: {sizes}")
    if isinstance(samples, bool) or not isinstance(samples, int | float) or not 0 < samples < math.inf:
        raise TraceError(path, 0, f"{name}.total_samples_to_train", f"{samples!r} must be a number above 0")
    return model, devices, float(samples)
