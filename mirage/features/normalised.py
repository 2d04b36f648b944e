"""Schema ``v2``: the queue relative to its partition, at hourly steps and now, for tree models and small networks.

Nodes are shares of the partition, times logarithms of hours, counts logarithms; so a model need not learn the
size of its cluster. The sequence is the last day at hourly steps, its last step the newest row of the window;
where less is known the oldest row is repeated. The statics describe the present: the snapshot itself, changes
since earlier hours, the two links, the work ahead, Slurm's plan, waits of jobs like the successor, what is
granted to the owner, and the clock. All are of the successor's partition; where its request names none, of the
whole cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import NO_LIMIT, PlanStatus, Wants
from mirage.domain.job import ABSENT
from mirage.features.summary import COLUMNS, FREED_WITHIN, freed, node_counts, percentiles, within
from mirage.features.table import FeatureSchema
from mirage.features.waitclass import SEARCHED, class_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.decision import Observation, Window
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

HOUR = 3_600

SHARES = ("idle_nodes", "allocated_nodes", "down_nodes", "running_nodes", *(f"freed_{h}h" for h in FREED_WITHIN))
"""Of the partition's nodes."""
SIZES = (*percentiles("pending_size"), *percentiles("running_size"), "pending_nodes", "eligible_nodes")
"""Logarithm of the share of the partition's nodes: a queue may ask for many times what there is."""
COUNTS = ("pending_jobs", "running_jobs", "eligible_jobs", "pending_users", "running_users")
"""Logarithms."""
TIMES = tuple(name for name in COLUMNS if name.split("_")[1] in ("limit", "age", "wait", "elapsed"))
"""Logarithms of hours."""
WORK = ("eligible_node_seconds",)
"""Logarithm of the hours that it would take the whole partition."""
PRIORITIES = percentiles("pending_priority")[1:4]
"""Of the highest priority in the queue."""
PLAIN = ("pending_largest_share", "running_largest_share")

_DIVISOR = np.where(np.isin(COLUMNS, (*TIMES, *WORK)), HOUR, 1)
_BY_TOTAL = np.isin(COLUMNS, (*SHARES, *SIZES, *WORK))
_BY_TOP = np.isin(COLUMNS, PRIORITIES)
_LOGARITHM = np.isin(COLUMNS, (*SIZES, *COUNTS, *TIMES, *WORK))
_TOTAL = COLUMNS.index("total_nodes")
_TOP = COLUMNS.index("pending_priority_p100")


def relative(rows: Float32) -> Float64:
    """Rows of ``COLUMNS`` in comparable units, shape as ``rows``; absolute priorities and totals stay."""
    values = rows.astype(np.float64)
    total, top = np.maximum(values[:, _TOTAL, None], 1), np.maximum(values[:, _TOP, None], 1)
    values /= _DIVISOR * np.where(_BY_TOTAL, total, 1) * np.where(_BY_TOP, top, 1)
    # Clocks of a cluster differ by a second or two: an age may be below zero.
    return np.where(_LOGARITHM, np.log1p(np.maximum(values, 0)), values)


def hourly(window: Window, now: Seconds, hours: int) -> Float64:
    """``relative`` rows of ``hours`` hours ago to now, shape (hours + 1, len(COLUMNS)).

    For each hour the last row known by then; before the first the oldest is repeated.
    """
    instants = now - HOUR * np.arange(hours, -1, -1)
    known = np.searchsorted(window.times, instants, side="right") - 1
    return relative(window.rows[np.maximum(known, 0)])


Int64 = NDArray[np.int64]

STEPS = 24
LAGS = (1, 3, 6, 12, 24)
"""Hours."""
FAR = 96.0
"""Hours: what lies farther off, or is not predicted at all, counts as so far."""
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of recent waits."""
TURNOVER = (1, 6, 24)
"""Hours."""

SEQUENCE = (
    "idle_nodes",
    "allocated_nodes",
    "down_nodes",
    "pending_jobs",
    "pending_nodes",
    "eligible_nodes",
    "eligible_node_seconds",
    "running_jobs",
    "freed_4h",
    "freed_12h",
    "freed_24h",
    "pending_age_p50",
    "running_elapsed_p50",
)
_PRESENT = tuple(
    name for name in COLUMNS if name in (*TIMES, *SIZES, *PRIORITIES, *COUNTS, *PLAIN) and name not in SEQUENCE
)
"""Read from the last row only: the rest is the last step of the sequence, or known from the snapshot."""
_CHANGING = (
    "idle_nodes",
    "pending_jobs",
    "eligible_nodes",
    "eligible_node_seconds",
    "running_jobs",
    "freed_12h",
    "pending_age_p50",
)


def _places(names: Sequence[str]) -> Int64:
    return np.array([COLUMNS.index(name) for name in names])


_IN_SEQUENCE, _IN_PRESENT, _IN_CHANGING = _places(SEQUENCE), _places(_PRESENT), _places(_CHANGING)
_LAGGED = max(LAGS) - np.array(LAGS)
_LEVELS = np.array(LEVELS)
_FREED_SECONDS = np.array(FREED_WITHIN) * HOUR


@dataclass(frozen=True, slots=True)
class _Scene:
    """What several blocks need of an observation."""

    observation: Observation
    total: int
    """Nodes of the partition, at least 1."""
    nodes: tuple[int, int, int]
    """Idle, allocated, down."""
    running: JobColumns
    waiting_nodes: Int64
    """Nodes of each eligible pending job."""
    waiting_limit: Int64
    barred_nodes: int
    """Nodes of pending jobs that are pending for another reason than the queue."""
    remaining: float
    """Hours until the predecessor's end; 0 if it has ended or does not exist."""


def _scene(observation: Observation) -> _Scene:
    snapshot, partition = observation.snapshot, observation.successor.partition
    total, *states = node_counts(snapshot, partition)
    if not total:
        where = f"partition {partition!r}" if partition else "the cluster"
        raise ValueError(f"v2: the snapshot shows no nodes of {where} (total_nodes)")
    pending = within(snapshot.pending, snapshot, partition)
    ready = pending.eligible <= observation.time
    predecessor = observation.predecessor
    end = predecessor.end if predecessor is not None and predecessor.end != ABSENT else observation.time
    return _Scene(
        observation,
        total,
        (states[0], states[1], states[2]),
        within(snapshot.running, snapshot, partition),
        pending.nodes[ready],
        pending.limit[ready],
        int(pending.nodes[~ready].sum()),
        max(0, end - observation.time) / HOUR,
    )


# Blocks of statics: names, and the function that gives their numbers.


def _nodes_now(scene: _Scene) -> list[float]:
    later = freed(scene.running, scene.observation.time, _FREED_SECONDS)
    return [count / scene.total for count in (*scene.nodes, *later.tolist())]


def _work_ahead(scene: _Scene) -> list[float]:
    """All eligible pending jobs: a fresh submission has the least age."""
    nodes, limit, asked = scene.waiting_nodes, scene.waiting_limit, scene.observation.successor.nodes
    smaller = nodes <= asked
    shares = (nodes.sum(), nodes @ limit / HOUR, nodes[smaller].sum(), scene.barred_nodes)
    return [math.log1p(len(nodes)), *(math.log1p(float(amount) / scene.total) for amount in shares)]


def _room(scene: _Scene) -> list[float]:
    """When running jobs' limits free enough nodes for the successor alone, and behind all that is ahead."""
    asked, idle = scene.observation.successor.nodes, scene.nodes[0]
    running, now = scene.running, scene.observation.time
    left = running.start + running.limit - now
    order = np.argsort(left, kind="stable")
    free = idle + np.cumsum(running.nodes[order])

    def hours_until(nodes: int) -> float:
        if nodes <= idle:
            return 0.0
        place = int(np.searchsorted(free, nodes))
        return FAR if place == len(free) else min(max(int(left[order[place]]), 0) / HOUR, FAR)

    alone, behind = hours_until(asked), hours_until(asked + int(scene.waiting_nodes.sum()))
    return [float(asked <= idle), math.log1p(alone), math.log1p(behind), (behind - scene.remaining) / 24]


def _links(scene: _Scene) -> list[float]:
    now, before, after = scene.observation.time, scene.observation.predecessor, scene.observation.successor
    ran = before is not None and before.start != ABSENT
    waited = (before.start - before.submit) / HOUR if before is not None and ran else 0.0
    elapsed = (now - before.start) / max(before.limit, 1) if before is not None and ran else 0.0
    return [
        float(ran),
        scene.remaining / 24,
        _log_hours(scene.remaining),
        elapsed,
        _log_hours(waited),
        after.nodes / scene.total,
        math.log1p(after.nodes),
        math.log1p(after.limit / HOUR),
    ]


def _plan(scene: _Scene) -> list[float]:
    """Training has met plans with a start, and without one within the window; nothing else may look like these."""
    planned = scene.observation.planned_start
    if planned.status not in (PlanStatus.KNOWN, PlanStatus.BEYOND_WINDOW):
        raise ValueError(f"v2: {planned.status} (plan_unknown)")
    unknown = not planned.is_known
    hours = FAR if unknown else min(max(planned.start - scene.observation.time, 0) / HOUR, FAR)
    return [float(unknown), math.log1p(hours), (hours - scene.remaining) / 24]


def _recent_waits(scene: _Scene) -> list[float]:
    waits = class_waits(scene.observation.waits, scene.observation.successor).wait / HOUR
    if not len(waits):
        return [1.0, 0.0, *(0.0 for _ in LEVELS), 0.0, 0.0, 0.0, 0.0]
    # As np.quantile, at a fifth of its cost.
    quantiles = np.interp(_LEVELS * (len(waits) - 1), np.arange(len(waits)), np.sort(waits))
    return [
        0.0,
        math.log1p(len(waits)),
        *(_log_hours(float(quantile)) for quantile in quantiles),
        _log_hours(float(waits.mean())),
        _log_hours(float(waits[-10:].mean())),
        _log_hours(float(waits[-1])),
        (float(quantiles[LEVELS.index(0.5)]) - scene.remaining) / 24,
    ]


def _turnover(scene: _Scene) -> list[float]:
    """Nodes given to jobs recently, as far as the recent waits reach back, and how long any job waited."""
    waits, now = scene.observation.waits, scene.observation.time
    nodes = (waits.nodes[waits.start > now - hours * HOUR].sum() for hours in TURNOVER)
    mean = float(waits.wait[-100:].mean()) if len(waits) else 0.0
    return [*(math.log1p(float(amount) / scene.total) for amount in nodes), _log_hours(mean / HOUR)]


def _standing(scene: _Scene) -> list[float]:
    """``jobs_left_unknown`` has always meant in training that there is no limit."""
    standing = scene.observation.standing
    if ABSENT in (standing.jobs_left, standing.reserved_nodes):
        raise ValueError("v2: the owner's limits and the reservations are not known (jobs_left, reserved_nodes)")
    unknown = math.isnan(standing.fair_share)
    return [
        float(unknown),
        0.0 if unknown else standing.fair_share,
        float(standing.jobs_left == NO_LIMIT),
        0.0 if standing.jobs_left == NO_LIMIT else math.log1p(standing.jobs_left),
        standing.reserved_nodes / scene.total,
    ]


def _clock(scene: _Scene) -> list[float]:
    """UTC; the week begins on Thursday, as the epoch does."""
    found = []
    for hours in (24, 168):
        angle = 2 * math.pi * (scene.observation.time % (hours * HOUR)) / (hours * HOUR)
        found += [math.sin(angle), math.cos(angle)]
    return found


def _log_hours(hours: float) -> float:
    return math.log1p(max(hours, 0.0))


_BLOCKS: tuple[tuple[tuple[str, ...], Callable[[_Scene], list[float]]], ...] = (
    (("now_idle", "now_allocated", "now_down", *(f"now_freed_{h}h" for h in FREED_WITHIN)), _nodes_now),
    (("ahead_jobs", "ahead_nodes", "ahead_hours", "ahead_smaller_nodes", "barred_nodes"), _work_ahead),
    (("fits_now", "room_alone", "room_behind", "room_behind_x"), _room),
    (
        (
            "predecessor_runs",
            "predecessor_remaining",
            "predecessor_remaining_log",
            "predecessor_elapsed",
            "predecessor_wait",
            "successor_share",
            "successor_nodes",
            "successor_limit",
        ),
        _links,
    ),
    (("plan_unknown", "plan_wait", "plan_x"), _plan),
    (
        (
            "waits_unknown",
            "waits_count",
            *(f"waits_q{round(100 * level)}" for level in LEVELS),
            "waits_mean",
            "waits_last_ten",
            "waits_last",
            "waits_q50_x",
        ),
        _recent_waits,
    ),
    ((*(f"started_{h}h" for h in TURNOVER), "waits_any"), _turnover),
    (("fair_share_unknown", "fair_share", "jobs_left_unknown", "jobs_left", "reserved_nodes"), _standing),
    (("day_sin", "day_cos", "week_sin", "week_cos"), _clock),
)
"""``..._x`` are differences to the predecessor's remaining time in days: what the handover would come to."""

SCHEMA = FeatureSchema(
    name="v2",
    version=1,
    sequence=SEQUENCE,
    steps=STEPS,
    static=(
        *(f"now_{name}" for name in _PRESENT),
        *(f"{name}_since_{lag}h" for lag in LAGS for name in _CHANGING),
        *(name for names, _ in _BLOCKS for name in names),
    ),
    wants=Wants(waits=SEARCHED, queue=True, plan=True, window=True, standing=True),
)


def encode(observation: Observation) -> Float32:
    """The vector of ``SCHEMA``. Raises ``ValueError`` for what no training has met: no window, no node of the
    partition, a plan that was not asked for or not permitted, limits that are not known."""
    window = observation.window
    if window is None or not len(window):
        raise ValueError("v2: no snapshot of the queue is known yet (window)")
    scene = _scene(observation)
    present = np.array([number for _, block in _BLOCKS for number in block(scene)])
    return np.concatenate([_past(window, observation.time), present], dtype=np.float32)


_told: list[tuple[Window, Seconds, Float64]] = []
"""The last past, at most: the chains of a cycle that share a partition share its window."""


def _past(window: Window, now: Seconds) -> Float64:
    """As ``_worked_out``. Any thread may ask: in a race the same is worked out twice."""
    for known, then, past in tuple(_told):
        if known is window and then == now:
            return past
    past = _worked_out(window, now)
    _told[:] = [(window, now, past)]
    return past


def _worked_out(window: Window, now: Seconds) -> Float64:
    """The sequence, the last row's further columns, and the changes since each lag."""
    rows = hourly(window, now, max(LAGS))
    changes = rows[-1, _IN_CHANGING] - rows[_LAGGED][:, _IN_CHANGING]
    return np.concatenate([rows[-STEPS:][:, _IN_SEQUENCE].ravel(), rows[-1, _IN_PRESENT], changes.ravel()])
