"""What a trace is like: volume, load, occupancy, waits by class, sizes, limits, rhythm and hand-made chains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.texts import printable
from mirage.trace.generator.sessions import MET_LIMIT, HandChainStats, hand_chains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int64, JobTable

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A step function: ``held[i]`` nodes from ``time[i]`` to ``time[i + 1]``; nothing before or after."""

    time: Int64
    """Ascending, each time once."""
    held: Int64

    @property
    def peak(self) -> int:
        """The most held at one time."""
        return int(self.held.max(initial=0))

    def node_seconds(self, instants: Int64) -> Int64:
        """Node-seconds used until each of the times."""
        if not len(self.time):
            return np.zeros(len(instants), dtype=np.int64)
        used = np.concatenate([[0], np.cumsum(self.held[:-1] * np.diff(self.time))])
        place = np.clip(np.searchsorted(self.time, instants, side="right") - 1, 0, None)
        since = np.maximum(instants - self.time[place], 0)
        return np.asarray(used[place] + self.held[place] * since)

    def hourly(self) -> NDArray[np.float64]:
        """Mean nodes held in each whole hour (of the clock) between the first start and the last end."""
        if not len(self.time):
            return np.empty(0)
        first, last = -(-int(self.time[0]) // HOUR), int(self.time[-1]) // HOUR
        hours = np.arange(first, max(last, first) + 1) * HOUR
        return np.diff(self.node_seconds(hours)) / HOUR


def occupancy(table: JobTable, size: Int64) -> Occupancy:
    """What the jobs that ran held; ``size`` is the amount of each job. A job still running holds on to the end."""
    ran = (table.start != ABSENT) & (size > 0)
    last = int(max(table.end.max(initial=0), table.start.max(initial=0)))
    start, end = table.start[ran], np.where(table.end[ran] == ABSENT, last, table.end[ran])
    times = np.concatenate([start, end])
    changes = np.concatenate([size[ran], -size[ran]])
    instants, place = np.unique(times, return_inverse=True)
    steps = np.zeros(len(instants), dtype=np.int64)
    np.add.at(steps, place, changes)
    return Occupancy(instants, np.cumsum(steps))


SHORT_WAIT = 2 * 3600
LONG_WAIT = 12 * 3600
"""Load classes of Mirage: to 2 h low, to 12 h medium, above heavy."""
LIMITS = (3600, 2 * 3600, 4 * 3600, 12 * 3600, 24 * 3600, 48 * 3600)
"""Upper ends of the classes of requested limits, seconds; one more class for what is above."""
SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Lower ends of the classes of sizes."""
WEEK_HOURS = 168
_LONGEST = 100 * 365 * 86_400
"""Seconds; there is a figure for each hour."""
CALENDAR_FROM = 10 * 365 * 86_400
"""Seconds since 1970. Earlier times are relative to the trace, so that hours of the week are unknown."""
_THURSDAY = 3 * 24
"""The epoch's first hour, counted from Monday 0:00."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long jobs waited that started. Durations are hours; None where no job did."""

    jobs: int
    mean: float | None
    median: float | None
    p90: float | None
    p99: float | None
    up_to_2h: float | None
    """Share of the jobs."""
    from_2h_to_12h: float | None
    above_12h: float | None


@dataclass(frozen=True, slots=True)
class WaitClass:
    """Jobs of one range of limits and one of sizes."""

    limit_above: int
    """Seconds, exclusive."""
    limit_to: int | None
    """Seconds, inclusive; None: no upper end."""
    size_from: int
    size_to: int | None
    waits: Waits


@dataclass(frozen=True, slots=True)
class Share:
    """Jobs of one kind, and how much of all node-hours they used."""

    label: str
    jobs: int
    share_of_jobs: float
    share_of_hours: float


@dataclass(frozen=True, slots=True)
class Load:
    """Use of the machine, in nodes (CPUs where the trace has no nodes)."""

    unit: str
    """``nodes`` or ``cpus``."""
    unit_hours: float
    peak: int
    """The most in use at one time."""
    hourly_p5: float | None
    """Of the mean use in each hour."""
    hourly_median: float | None
    hourly_p95: float | None
    capacity: int | None
    """As given."""
    utilisation: float | None
    """Unit-hours / (capacity x span); None without a capacity."""


@dataclass(frozen=True, slots=True)
class RunShares:
    """Runtime as a part of the limit, of the jobs that ended and have one."""

    p10: float | None
    median: float | None
    p90: float | None
    met_limit: float | None
    """Share that ran at least 98 % of it."""


@dataclass(frozen=True, slots=True)
class TraceStats:
    """All statistics of one trace."""

    source: str
    jobs: int
    users: int
    never_started: int
    first_submit: int
    """Seconds, on the trace's own clock."""
    last_event: int
    span_days: float
    states: tuple[Share, ...]
    load: Load
    waits: Waits
    wait_classes: tuple[WaitClass, ...]
    """Classes without jobs are left out."""
    sizes: tuple[Share, ...]
    limits: tuple[Share, ...]
    run_shares: RunShares
    arrivals: tuple[int, ...]
    """Jobs submitted in each hour of the week, from Monday 0:00 UTC; empty where the trace has no calendar."""
    chains: HandChainStats
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


def trace_stats(table: JobTable, capacity_nodes: int | None = None) -> TraceStats:
    """The statistics of ``table``; ``capacity_nodes``: nodes (or CPUs) that the machine has.

    Raises ``TraceError`` for a trace of more than a century.
    """
    _check_span(table)
    unit, size = _sizes(table)
    hours = np.maximum(size, 0) * np.maximum(table.runtime, 0) / 3600
    first, last = _span(table)
    return TraceStats(
        source=table.source,
        jobs=len(table),
        users=len(np.unique(table.user.codes[table.user.codes >= 0])),
        never_started=int((table.start == ABSENT).sum()),
        first_submit=first,
        last_event=last,
        span_days=(last - first) / 86_400,
        states=_states(table, hours),
        load=_load(table, unit, size, capacity_nodes),
        waits=_waits(table.wait[table.start != ABSENT]),
        wait_classes=_wait_classes(table, size),
        sizes=_size_shares(size, hours, unit),
        limits=_limit_shares(table.limit, hours),
        run_shares=_run_shares(table),
        arrivals=_arrivals(table),
        chains=hand_chains(table),
        notes=table.notes,
    )


def _check_span(table: JobTable) -> None:
    first, last = _span(table)
    if last - first > _LONGEST:
        years = (last - first) // (365 * 86_400)
        told = f"its jobs span {years:,} years: a time is wrong, or not in seconds"
        raise TraceError(printable(table.source) or "the trace", 0, "", told)


def _sizes(table: JobTable) -> tuple[str, Int64]:
    """Return the unit of sizes in the trace, and each job's size; ``ABSENT`` if unknown."""
    if (table.nodes > 0).any() or not (table.cpus > 0).any():
        return "nodes", table.nodes.astype(np.int64)
    return "cpus", table.cpus.astype(np.int64)


def _span(table: JobTable) -> tuple[int, int]:
    if not len(table):
        return 0, 0
    last = max(int(column.max()) for column in (table.submit, table.start, table.end))
    return int(table.submit.min()), last


def _load(table: JobTable, unit: str, size: Int64, capacity: int | None) -> Load:
    held = occupancy(table, size)
    hourly = held.hourly()
    total = float(held.node_seconds(held.time[-1:]).sum()) / 3600
    first, last = _span(table)
    available = (capacity or 0) * (last - first) / 3600
    return Load(
        unit=unit,
        unit_hours=total,
        peak=held.peak,
        hourly_p5=_quantile(hourly, 0.05),
        hourly_median=_quantile(hourly, 0.5),
        hourly_p95=_quantile(hourly, 0.95),
        capacity=capacity,
        utilisation=total / available if available else None,
    )


def _waits(seconds: Int64) -> Waits:
    hours = seconds / 3600
    return Waits(
        jobs=len(hours),
        mean=_mean(hours),
        median=_quantile(hours, 0.5),
        p90=_quantile(hours, 0.9),
        p99=_quantile(hours, 0.99),
        up_to_2h=_mean(seconds <= SHORT_WAIT),
        from_2h_to_12h=_mean((seconds > SHORT_WAIT) & (seconds <= LONG_WAIT)),
        above_12h=_mean(seconds > LONG_WAIT),
    )


def _wait_classes(table: JobTable, size: Int64) -> tuple[WaitClass, ...]:
    """Waits by requested limit and size, of the jobs that started and whose limit and size are known."""
    usable = (table.start != ABSENT) & (table.limit != ABSENT) & (size > 0)
    by_limit, by_size = _limit_class(table.limit), _size_class(size)
    lows, highs = (0, *LIMITS), (*LIMITS, None)
    tops = (*(low - 1 for low in SIZES[1:]), None)
    found = []
    for i in range(len(lows)):
        for j in range(len(SIZES)):
            inside = usable & (by_limit == i) & (by_size == j)
            if inside.any():
                found.append(WaitClass(lows[i], highs[i], SIZES[j], tops[j], _waits(table.wait[inside])))
    return tuple(found)


def _limit_class(limit: Int64) -> Int64:
    return np.searchsorted(LIMITS, limit, side="left")


def _size_class(size: Int64) -> Int64:
    return np.searchsorted(SIZES, size, side="right") - 1


def _states(table: JobTable, hours: NDArray[np.float64]) -> tuple[Share, ...]:
    """By state; jobs that left the queue without running are apart."""
    never = (table.start == ABSENT) & (table.state != JobState.PENDING)
    code = np.where(never, table.state + len(JobState), table.state).astype(np.int64)
    labels = [state.name for state in JobState]
    labels += [f"{label}, never started" for label in labels]
    return tuple(sorted(_shares(code, labels, hours), key=lambda share: -share.jobs))


def _size_shares(size: Int64, hours: NDArray[np.float64], unit: str) -> tuple[Share, ...]:
    labels = [
        f"{size_label(low, high)} {unit if high != 2 else unit[:-1]}"
        for low, high in zip(SIZES, (*SIZES[1:], None), strict=True)
    ]
    return _shares(np.where(size > 0, _size_class(size), len(SIZES)), [*labels, "not known"], hours)


def size_label(low: int, following: int | None) -> str:
    """``4-7``: from ``low`` to below ``following``; ``64+`` where nothing follows."""
    if following is None:
        return f"{low}+"
    return str(low) if following == low + 1 else f"{low}-{following - 1}"


def _limit_shares(limit: Int64, hours: NDArray[np.float64]) -> tuple[Share, ...]:
    labels = [limit_label(low, high) for low, high in zip((0, *LIMITS), (*LIMITS, None), strict=True)]
    return _shares(np.where(limit == ABSENT, len(labels), _limit_class(limit)), [*labels, "not known"], hours)


def limit_label(above: int, to: int | None) -> str:
    """``2-4 h``: above the first, up to and including the second (seconds)."""
    if to is None:
        return f"> {above // 3600} h"
    return f"{above // 3600}-{to // 3600} h" if above else f"<= {to // 3600} h"


def _shares(code: Int64, labels: list[str], hours: NDArray[np.float64]) -> tuple[Share, ...]:
    """One share for each label that has jobs; ``code`` indexes the labels."""
    jobs = np.bincount(code, minlength=len(labels))
    used = np.bincount(code, hours, minlength=len(labels))
    total = max(float(used.sum()), 1e-9)
    return tuple(
        Share(label, int(jobs[k]), float(jobs[k] / len(code)), float(used[k] / total))
        for k, label in enumerate(labels)
        if jobs[k]
    )


def _run_shares(table: JobTable) -> RunShares:
    ended = (table.start != ABSENT) & (table.end != ABSENT) & (table.limit > 0)
    share = table.runtime[ended] / table.limit[ended]
    p10, median, p90 = (_quantile(share, level) for level in (0.1, 0.5, 0.9))
    return RunShares(p10, median, p90, _mean(share >= MET_LIMIT))


def _arrivals(table: JobTable) -> tuple[int, ...]:
    submit = table.submit + table.origin
    if not len(submit) or int(submit.min()) < CALENDAR_FROM:
        return ()
    hour = (submit // 3600 + _THURSDAY) % WEEK_HOURS
    return tuple(np.bincount(hour, minlength=WEEK_HOURS).tolist())


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: NDArray[np.float64], level: float) -> float | None:
    return float(np.quantile(values, level)) if len(values) else None
