"""Measured speeds of tasks, from three sources.

Mirage's own, as ``mirage allocation speeds`` writes them while tasks run: JSON. ``runs`` has an entry for each
model, number of devices, spread (nodes) and kind: throughput alone, and seconds of measurement. ``beside`` has
the factors of neighbours other than 1: run, neighbour (rows of ``runs``), ratio.

DeepShare's (gajagajago/deepshare, ``scheduler/jobs``): ``isolated_thp.csv`` and ``shared_thp_ratio.csv``, 36
runs of 6 models alone and each next to each other, on nodes of 8 GPUs. A run is ``model,GPUs,nodes``. The ratio
of a run next to another holds for two runs that share a node and both span several nodes: they interfere in the
network. The source assumes that a run within one node has no influence on others and none from them, and
measured none; here such a run has the throughput of the narrowest measured spread, and ratios of 1.

Gavel's (stanford-futuredata/gavel, ``simulation_throughputs.json``, also gzipped). Keys are kinds of GPU, with
``_unconsolidated`` for gangs that are not on as few nodes as possible; then ``('MODEL', GPUS)``; then ``null``
(alone) or the job next to which it was run. Those pairs share one GPU, not a node: they are not ratios of
neighbours, and are not read. Throughput 0 means that the model does not fit there.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mirage.allocation.ddl.formats.rows import finite, read_json, read_sheet
from mirage.allocation.ddl.speeds import MeasuredRun, Measurements
from mirage.documentreading import faults_of, reader_of
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from mirage.allocation.ddl.estimation import Evidence
    from mirage.allocation.ddl.formats.rows import DataRow

_SPREAD = "_unconsolidated"
_ALONE_GAVEL = "null"
_REFERENCE = "v100"


def read_gavel(path: str | Path) -> Measurements:
    """The throughputs alone, on kinds of GPU; speed 1 is consolidated on the reference (V100)."""
    runs: list[MeasuredRun] = []
    throughput: list[float] = []
    for label, jobs in _document(path).items():
        kind, spread = (label.removesuffix(_SPREAD), 2) if label.endswith(_SPREAD) else (label, 1)
        for key, entry in jobs.items():
            runs.append(MeasuredRun(*_job(key, f"{label}.{key}", str(path)), spread, kind))
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
    value = finite(entry.get(_ALONE_GAVEL)) if isinstance(entry, dict) else None
    if value is None:
        raise TraceError(path, 0, field, f"{_ALONE_GAVEL!r} must be a throughput of at least 0")
    return value


def _job(key: str, field: str, path: str) -> tuple[str, int]:
    try:
        model, devices = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        model, devices = None, None
    if not isinstance(model, str) or not isinstance(devices, int) or devices < 1:
        raise TraceError(path, 0, field, "the job must be ('MODEL', GPUS)")
    return model, devices


_ALONE, _BESIDE, _SAMPLES = "isolated_thp.csv", "shared_thp_ratio.csv", "total_samples_trained.csv"
_THROUGHPUT = "isol_thp"
_MOST_DIGITS = 9


def read_deepshare(folder: str | Path) -> Measurements:
    """The measurements in a directory; raises ``TraceError`` where a file is missing, damaged or inconsistent."""
    alone = read_sheet(Path(folder) / _ALONE)
    alone.need("", _THROUGHPUT)
    labels: set[str] = set()
    for row in alone.rows:
        if row.text("") in labels:
            raise row.fault("", f"duplicate run {row.text('')!r}")
        labels.add(row.text(""))
    runs = [_run(row, row.text("")) for row in alone.rows]
    throughput = [_positive(row, _THROUGHPUT) for row in alone.rows]
    ratio = _ratios(Path(folder) / _BESIDE, [row.text("") for row in alone.rows])
    inside = _within_a_node(runs)
    count = len(runs)
    full = np.ones((count + len(inside), count + len(inside)))
    full[:count, :count] = ratio
    return Measurements(
        source=str(folder),
        runs=(*runs, *(MeasuredRun(runs[row].model, runs[row].devices, 1) for row in inside)),
        throughput=np.array([*throughput, *(throughput[row] for row in inside)]),
        ratio=full,
    )


def read_samples(folder: str | Path) -> dict[tuple[str, int], float]:
    """Samples of the source's own traces by model and devices: an hour at average speed."""
    sheet = read_sheet(Path(folder) / _SAMPLES)
    sheet.need("")
    return {
        (row.text(""), _size(row, column)): _positive(row, column)
        for row in sheet.rows
        for column in sheet.columns
        if column
    }


def _run(row: DataRow, label: str) -> MeasuredRun:
    parts = label.rsplit(",", 2)
    if len(parts) != 3 or not (_is_count(parts[1]) and _is_count(parts[2])):
        raise row.fault("", f"{label!r} must be MODEL,GPUS,NODES")
    devices, spread = int(parts[1]), int(parts[2])
    if not 1 <= spread <= devices:
        raise row.fault("", f"{label!r}: {devices} GPUs cannot be on {spread} nodes")
    return MeasuredRun(parts[0], devices, spread)


def _ratios(path: Path, labels: list[str]) -> list[list[float]]:
    """Ratios in the order of ``labels``; those above 1 (measurement noise) stay unchanged."""
    sheet = read_sheet(path)
    sheet.need("", *labels)
    rows = {row.text(""): row for row in sheet.rows}
    missing = next((label for label in labels if label not in rows), None)
    if missing is not None:
        raise TraceError(str(path), 0, "", f"no row of {missing!r}, which {_ALONE} has")
    return [[_positive(rows[one], other) for other in labels] for one in labels]


def _within_a_node(runs: list[MeasuredRun]) -> list[int]:
    """The narrowest run of each model and size without a measured run within one node."""
    narrowest: dict[tuple[str, int], int] = {}
    for row in sorted(range(len(runs)), key=lambda row: runs[row].spread):
        narrowest.setdefault((runs[row].model, runs[row].devices), row)
    return [row for row in narrowest.values() if runs[row].spread > 1]


def _positive(row: DataRow, column: str) -> float:
    value = row.number(column)
    if value <= 0:
        raise row.fault(column, f"{value:g} must be above 0")
    return value


def _size(row: DataRow, column: str) -> int:
    if not _is_count(column):
        raise row.fault(column, f"the column {column!r} must be a number of GPUs")
    return int(column)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _SpeedModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _SpeedRun(_SpeedModel):
    model: str
    devices: Annotated[int, Field(ge=1)]
    spread: Annotated[int, Field(ge=1)]
    kind: str
    throughput: _Positive
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _SpeedFile(_SpeedModel):
    version: Annotated[int, Field(ge=1, le=1)]
    reference_kind: str
    runs: Annotated[tuple[_SpeedRun, ...], Field(strict=False)]
    beside: Annotated[tuple[Annotated[tuple[int, int, _Positive], Field(strict=False)], ...], Field(strict=False)]


def document(measured: Measurements, evidence: Evidence) -> dict[str, Any]:
    """The table as JSON. Spreads must be numbers of nodes."""
    seconds = {run: evidence.seconds(run) for run in evidence.runs}
    return {
        "version": 1,
        "reference_kind": measured.reference_kind,
        "runs": [
            {
                "model": run.model,
                "devices": run.devices,
                "spread": run.spread,
                "kind": run.kind,
                "throughput": float(throughput),
                "seconds": seconds.get(run, 0.0),
            }
            for run, throughput in zip(measured.runs, measured.throughput, strict=True)
        ],
        "beside": [
            [int(row), int(other), float(measured.ratio[row, other])]
            for row, other in zip(*np.nonzero(measured.ratio != 1.0), strict=True)
        ],
    }


def read_measured(path: str | Path) -> Measurements:
    """Read such a file. Raises ``TraceError`` for any other."""
    try:
        file = reader_of(_SpeedFile).validate_python(read_json(path))
    except ValidationError as error:
        fault = faults_of(error)[0]
        raise TraceError(str(path), 0, fault.key, fault.said) from None
    runs = tuple(MeasuredRun(run.model, run.devices, run.spread, run.kind) for run in file.runs)
    if len(set(runs)) < len(runs):
        raise TraceError(str(path), 0, "runs", "two entries have the same model, devices, spread and kind")
    count = len(runs)
    ratio = np.ones((count, count))
    for row, other, left in file.beside:
        if not (0 <= row < count and 0 <= other < count):
            raise TraceError(str(path), 0, "beside", f"[{row}, {other}] are not among the {count} runs")
        ratio[row, other] = left
    return Measurements(
        source=str(path),
        runs=runs,
        throughput=np.array([run.throughput for run in file.runs]),
        ratio=ratio,
        reference_kind=file.reference_kind,
    )
