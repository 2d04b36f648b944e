"""Speeds that were measured while tasks ran, as ``mirage allocation speeds`` writes them: JSON.

``runs`` has an entry for each model, number of devices, spread (nodes) and kind: throughput alone, and seconds of
measurement. ``beside`` has the factors of neighbours other than 1: run, neighbour (rows of ``runs``), ratio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mirage.allocation.ddl.formats.rows import read_json
from mirage.allocation.ddl.speeds import Measured, Measurements
from mirage.documentfaults import faults_of, reader_of
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.evidence import Evidence

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Run(_Strict):
    model: str
    devices: Annotated[int, Field(ge=1)]
    spread: Annotated[int, Field(ge=1)]
    kind: str
    throughput: _Positive
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _File(_Strict):
    version: Annotated[int, Field(ge=1, le=1)]
    reference_kind: str
    runs: Annotated[tuple[_Run, ...], Field(strict=False)]
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
        file = reader_of(_File).validate_python(read_json(path))
    except ValidationError as error:
        fault = faults_of(error)[0]
        raise TraceError(str(path), 0, fault.key, fault.said) from None
    runs = tuple(Measured(run.model, run.devices, run.spread, run.kind) for run in file.runs)
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
