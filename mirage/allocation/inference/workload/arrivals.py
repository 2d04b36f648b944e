"""Arrival times of requests: drawn, tenant by tenant, or read from a trace."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.workload.scenario import Bursts
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.workload.scenario import Poisson
    from mirage.domain.request import Float64, Int32


def draw_times(arrivals: Poisson | Bursts, rate: float, duration: float, rng: np.random.Generator) -> Float64:
    """Arrival times of one tenant's requests in [0, duration); ``rate``: mean requests per second.

    A Poisson process with a changing rate is one of rate 1 in a time that passes in proportion to the rate.
    """
    times, counted = _phases(arrivals, duration, rng) if isinstance(arrivals, Bursts) else _steady(duration)
    total = rate * counted[-1]
    spots = np.sort(rng.uniform(0.0, total, rng.poisson(total)))
    return np.asarray(np.interp(spots, rate * counted, times))


def _steady(duration: float) -> tuple[Float64, Float64]:
    return np.array([0.0, duration]), np.array([0.0, duration])


def _phases(bursts: Bursts, duration: float, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Times at which the phases change, and the integral of the rate up to then, in units of the mean rate."""
    low = max(1.0 - bursts.factor * bursts.part, 0.0) / (1.0 - bursts.part)
    means = bursts.seconds * (1.0 - bursts.part) / bursts.part, bursts.seconds
    rates = low, bursts.factor
    phase, times, counted = int(rng.random() < bursts.part), [0.0], [0.0]
    while times[-1] < duration:
        end = min(times[-1] + rng.exponential(means[phase]), duration)
        counted.append(counted[-1] + rates[phase] * (end - times[-1]))
        times.append(end)
        phase = 1 - phase
    return np.array(times), np.array(counted)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests of a trace, in order of arrival."""

    time: Float64
    tenant: Int32
    model: Int32


def read_trace(path: str, tenants: Sequence[str], models: Sequence[str]) -> Recorded:
    """Read a CSV file with the columns time (s), tenant and model. Raises ``TraceError``."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(path, 0, "", f"cannot be read: {error}") from error
    rows = csv.DictReader(io.StringIO(text), strict=True)
    known = {name: row for row, name in enumerate(tenants)}, {name: row for row, name in enumerate(models)}
    try:
        missing = {"time", "tenant", "model"} - set(rows.fieldnames or ())
        if missing:
            raise TraceError(path, 1, ", ".join(sorted(missing)), "no such column")
        read = [_read_row(path, rows.line_num, row, *known) for row in rows]
    except csv.Error as error:
        raise TraceError(path, rows.line_num, "", f"invalid CSV: {error}") from None
    time, tenant, model = np.array(read, dtype=np.float64).reshape(-1, 3).T
    order = np.argsort(time, kind="stable")
    return Recorded(time[order], tenant[order].astype(np.int32), model[order].astype(np.int32))


def _read_row(
    path: str, line: int, row: dict[str, str | None], tenants: dict[str, int], models: dict[str, int]
) -> tuple[float, int, int]:
    try:
        time = float(row["time"] or "")
    except ValueError:
        time = np.nan
    if not 0 <= time < np.inf:
        raise TraceError(path, line, "time", f"{row['time']!r} is not a number of seconds")
    for column, known in (("tenant", tenants), ("model", models)):
        if row[column] not in known:
            raise TraceError(path, line, column, f"{row[column]!r} is not one of: {', '.join(known)}")
    return time, tenants[str(row["tenant"])], models[str(row["model"])]
