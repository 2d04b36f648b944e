"""Gavel's measured throughputs (stanford-futuredata/gavel, ``simulation_throughputs.json``, also gzipped).

Keys are kinds of GPU, with ``_unconsolidated`` for gangs that are not on as few nodes as possible; then
``('MODEL', GPUS)``; then ``null`` (alone) or the job next to which it was run. Those pairs share one GPU, not a
node: they are not ratios of neighbours, and are not read. Throughput 0 means that the model does not fit there.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.ddl.formats.rows import finite, read_json
from mirage.allocation.ddl.speeds import Measured, Measurements
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

_SPREAD = "_unconsolidated"
_ALONE = "null"
_REFERENCE = "v100"


def read_gavel(path: str | Path) -> Measurements:
    """The throughputs alone, on kinds of GPU; speed 1 is consolidated on the reference (V100)."""
    runs: list[Measured] = []
    throughput: list[float] = []
    for label, jobs in _document(path).items():
        kind, spread = (label.removesuffix(_SPREAD), 2) if label.endswith(_SPREAD) else (label, 1)
        for key, entry in jobs.items():
            runs.append(Measured(*_job(key, f"{label}.{key}", str(path)), spread, kind))
            throughput.append(_alone(entry, f"{label}.{key}", str(path)))
    if not runs:
        raise TraceError(str(path), 0, "", "contains no throughput")
    ratio = np.ones((len(runs), len(runs)))
    return Measurements(str(path), tuple(runs), np.array(throughput), ratio, _REFERENCE, beyond_fewest=True)


def _document(path: str | Path) -> dict[str, dict[str, Any]]:
    document = read_json(path)
    if not isinstance(document, dict) or not all(isinstance(jobs, dict) for jobs in document.values()):
        raise TraceError(str(path), 0, "", "must be an object of kinds of GPU, each an object of jobs")
    return document


def _alone(entry: object, field: str, path: str) -> float:
    value = finite(entry.get(_ALONE)) if isinstance(entry, dict) else None
    if value is None:
        raise TraceError(path, 0, field, f"{_ALONE!r} must be a throughput of at least 0")
    return value


def _job(key: str, field: str, path: str) -> tuple[str, int]:
    try:
        model, devices = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        model, devices = None, None
    if not isinstance(model, str) or not isinstance(devices, int) or devices < 1:
        raise TraceError(path, 0, field, "the job must be ('MODEL', GPUS)")
    return model, devices
