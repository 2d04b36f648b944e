"""DeepShare's measured throughputs (gajagajago/deepshare, ``scheduler/jobs``): ``isolated_thp.csv`` and
``shared_thp_ratio.csv``, 36 runs of 6 models alone and each next to each other, on nodes of 8 GPUs.

A run is ``model,GPUs,nodes``. The ratio of a run next to another holds for two runs that share a node and both
span several nodes: they interfere in the network. The source assumes that a run within one node has no influence
on others and none from them, and measured none; here such a run has the throughput of the narrowest measured
spread, and ratios of 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.rows import read_sheet
from mirage.allocation.ddl.speeds import Measured, Measurements
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from mirage.allocation.ddl.formats.rows import Row

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
        runs=(*runs, *(Measured(runs[row].model, runs[row].devices, 1) for row in inside)),
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


def _run(row: Row, label: str) -> Measured:
    parts = label.rsplit(",", 2)
    if len(parts) != 3 or not (_is_count(parts[1]) and _is_count(parts[2])):
        raise row.fault("", f"{label!r} must be MODEL,GPUS,NODES")
    devices, spread = int(parts[1]), int(parts[2])
    if not 1 <= spread <= devices:
        raise row.fault("", f"{label!r}: {devices} GPUs cannot be on {spread} nodes")
    return Measured(parts[0], devices, spread)


def _ratios(path: Path, labels: list[str]) -> list[list[float]]:
    """Ratios in the order of ``labels``; those above 1 (measurement noise) stay unchanged."""
    sheet = read_sheet(path)
    sheet.need("", *labels)
    rows = {row.text(""): row for row in sheet.rows}
    missing = next((label for label in labels if label not in rows), None)
    if missing is not None:
        raise TraceError(str(path), 0, "", f"no row of {missing!r}, which {_ALONE} has")
    return [[_positive(rows[one], other) for other in labels] for one in labels]


def _within_a_node(runs: list[Measured]) -> list[int]:
    """The narrowest run of each model and size without a measured run within one node."""
    narrowest: dict[tuple[str, int], int] = {}
    for row in sorted(range(len(runs)), key=lambda row: runs[row].spread):
        narrowest.setdefault((runs[row].model, runs[row].devices), row)
    return [row for row in narrowest.values() if runs[row].spread > 1]


def _positive(row: Row, column: str) -> float:
    value = row.number(column)
    if value <= 0:
        raise row.fault(column, f"{value:g} must be above 0")
    return value


def _size(row: Row, column: str) -> int:
    if not _is_count(column):
        raise row.fault(column, f"the column {column!r} must be a number of GPUs")
    return int(column)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS
