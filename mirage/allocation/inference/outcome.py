"""Result of a run: which request was answered when, and the figures by which policies are compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.inference.encode import isolated_seconds

if TYPE_CHECKING:
    from mirage.domain.inference import CostTable, DeviceSet, RequestTable

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """Segments by unit and time; columns of equal length, by end. Empty unless the run was logged."""

    request: Int64
    piece: Int64
    unit: Int64
    begin: Float64
    end: Float64

    def __len__(self) -> int:
        return len(self.request)


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """Figures of a group of requests, or of a whole run. Times in seconds, over the answered requests."""

    requests: int
    answered: int
    satisfaction: float
    """Share of the requests answered before their deadline; those never answered count as missed."""
    mean_latency: float
    """Seconds from arrival to answer."""
    p50_latency: float
    p99_latency: float
    antt: float
    """Average normalised turnaround time: latency over that of the model alone on the best kind, mean."""
    joules: float
    """Joules of a request's segments, mean."""


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """Figures of a whole run."""

    all: RequestFigures
    span: float
    """From the first arrival to the last end."""
    stp: float
    """System throughput: seconds of work, as alone on the best kind, answered per second."""
    utilisation: float
    """Unit-seconds busy / (units x span)."""
    bandwidth_use: float
    """Bytes moved / (bandwidth x span); 0 where units do not share."""
    idle_joules: float
    """Joules of idle units, per request."""
    policy_joules: float
    """Joules of decisions, per request."""
    jain: float
    """Fairness between tenants: Jain's index of their satisfaction; 1 where all are equal."""
    worst: float
    """The least satisfaction of any tenant."""
    pieces: int
    decisions: int


@dataclass(frozen=True)
class RequestRunResult:
    """Columns by request; NaN for events that have not happened."""

    requests: RequestTable
    system: DeviceSet
    costs: CostTable
    begin: Float64
    """Start of the first segment."""
    end: Float64
    served: Float64
    """Seconds on units."""
    joules: Float64
    """Joules of its segments."""
    busy: Float64
    """[U] Busy seconds."""
    bytes_moved: float
    policy_joules: float
    pieces: int
    decisions: int
    segments: SegmentLog

    @cached_property
    def latency(self) -> Float64:
        """Seconds from arrival to answer."""
        return self.end - self.requests.arrival

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """Whether a request was answered before its deadline."""
        return self.end <= self.requests.deadline

    @cached_property
    def isolated(self) -> Float64:
        """Seconds of each alone on the system's best kind."""
        return isolated_seconds(self.costs, self.system)[self.requests.model]

    @cached_property
    def figures(self) -> SystemFigures:
        """The figures of the run.

        STP (Eyerman & Eeckhout, IEEE Micro 28(3), 2008) sums C_alone / C_together over the programs that run
        together. Here they come and go: a request present for its latency progresses at isolated / latency of its
        speed alone, so the sum over those present, averaged over the span, is the sum of isolated / span.
        Jain's index (Jain, Chiu & Hawe, DEC-TR-301, 1984) is (sum x)^2 / (n sum x^2).
        """
        answered = ~np.isnan(self.end)
        first = float(self.requests.arrival.min(initial=np.inf))
        span = float(self.end[answered].max() - first) if answered.any() else np.nan
        count = max(len(self.end), 1)
        idle = np.maximum(span - self.busy, 0.0) @ self.system.idle_watts[self.system.kind]
        kept = [figures.satisfaction for figures in self.by_tenant if figures.requests]
        shared = np.isfinite(self.system.bandwidth)
        return SystemFigures(
            all=self.of(np.ones(len(self.end), dtype=bool)),
            span=span,
            stp=float(self.isolated[answered].sum() / span) if answered.any() else np.nan,
            utilisation=float(self.busy.sum() / (len(self.busy) * span)),
            bandwidth_use=float(self.bytes_moved / (self.system.bandwidth * span)) if shared else 0.0,
            idle_joules=float(idle / count),
            policy_joules=self.policy_joules / count,
            jain=jain_index(np.array(kept)),
            worst=min(kept, default=np.nan),
            pieces=self.pieces,
            decisions=self.decisions,
        )

    @cached_property
    def by_tenant(self) -> tuple[RequestFigures, ...]:
        """Figures in the order of the tenants."""
        return tuple(self.of(self.requests.tenant == row) for row in range(len(self.requests.tenants)))

    @cached_property
    def by_model(self) -> tuple[RequestFigures, ...]:
        """Figures in the order of the models of the costs."""
        return tuple(self.of(self.requests.model == row) for row in range(len(self.costs.models)))

    def of(self, rows: NDArray[np.bool_]) -> RequestFigures:
        """The figures of some of the requests."""
        answered = rows & ~np.isnan(self.end)
        latency, count = self.latency[answered], int(rows.sum())
        p50, p99 = np.percentile(latency, [50, 99]) if len(latency) else (np.nan, np.nan)
        return RequestFigures(
            requests=count,
            answered=len(latency),
            satisfaction=float(self.kept[rows].mean()) if count else np.nan,
            mean_latency=float(latency.mean()) if len(latency) else np.nan,
            p50_latency=float(p50),
            p99_latency=float(p99),
            antt=float((latency / self.isolated[answered]).mean()) if len(latency) else np.nan,
            joules=float(self.joules[rows].mean()) if count else np.nan,
        )


def jain_index(shares: Float64) -> float:
    """1 if all values are equal, 1/n if one has everything; NaN without values, 1 if all are 0."""
    if not len(shares):
        return np.nan
    squares = float((shares**2).sum())
    return float(shares.sum() ** 2 / (len(shares) * squares)) if squares > 0 else 1.0
