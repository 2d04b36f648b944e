"""Forecasts of recorded waits: by recent waits, by trees, by look-ahead. All return hours at ``LEVELS``.

They see the content of a job table at the time of a submission, without any later event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import Observation, RecentWaits, WaitForecast
from mirage.domain.errors import ConfigError, MissingExtra, SubmissionRejected, TraceError
from mirage.domain.job import ABSENT, NEVER, JobRequest, JobState
from mirage.domain.jobtable import hashed_names, hashed_users, series_of, wait_began
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.waitclass import SEARCHED, class_waits
from mirage.predictors.lookahead import Lookahead
from mirage.training.evaluation.figures import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.jobtable import JobTable, Names
    from mirage.simulator.cluster import ClusterConfig

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class PresentWeights:
    """Amount that had come, and had not left, strictly before a time, by group."""

    def __init__(self, group: Int64, came: Int64, left: Int64, weight: Float64) -> None:
        """Equal lengths. ``left`` is ``NEVER`` for what stays; an item that leaves on arrival never counts."""
        self._came, self._left = CumulativeWeights(group, came, weight), CumulativeWeights(group, left, weight)

    def at(self, group: Int64, time: Int64) -> Float64:
        """The sum of present weights, one for each pair of a group and a time."""
        return self._came.before(group, time) - self._left.before(group, time)


class CumulativeWeights:
    """Sums of weights of events strictly before a time, group by group."""

    def __init__(self, group: Int64, time: Int64, weight: Float64) -> None:
        order = np.lexsort((time, group))
        self._group, self._time = group[order], time[order]
        self._sums = np.concatenate([[0.0], np.cumsum(weight[order])])
        self._order = order

    def before(self, group: Int64, time: Int64) -> Float64:
        """The sum for each pair."""
        first, last = self.places(group, time)
        return np.asarray(self._sums[last] - self._sums[first])

    def places(self, group: Int64, time: Int64) -> tuple[Int64, Int64]:
        """For each pair the events of the group before the time, as a range of ``rows``."""
        first, last = np.empty(len(time), dtype=np.int64), np.empty(len(time), dtype=np.int64)
        for one in np.unique(group):
            asked = group == one
            low, high = np.searchsorted(self._group, [one, one + 1])
            first[asked] = low
            last[asked] = low + np.searchsorted(self._time[low:high], time[asked], side="left")
        return first, last

    @property
    def rows(self) -> Int64:
        """Rows of the events, group by group in order of time."""
        return self._order


@dataclass(frozen=True, slots=True)
class WaitRecords:
    """The jobs of a trace, and those of them whose waits are predicted."""

    table: JobTable
    partition: Int64
    user: Int64
    """Codes from 0; one for all where the source has none."""
    left_queue: Int64
    """When a job stopped pending; ``NEVER`` where that is not known."""
    left: Int64
    """When a job that had started ended; ``NEVER`` where that is not known."""

    @classmethod
    def of(cls, table: JobTable) -> WaitRecords:
        """Raises ``TraceError`` for a table without recorded waits."""
        started = table.start != ABSENT
        if not (started & (table.start >= table.submit)).any() or not (table.wait > 0).any():
            raise TraceError(table.source, 0, "start", "the trace has no recorded waits")
        ended = np.where(table.end != ABSENT, table.end, NEVER)
        # A job with an unknown end of its pending time must not stay in the queue indefinitely.
        gone = np.where(table.end != ABSENT, table.end, table.submit)
        left_queue = np.where(started, table.start, gone)
        return cls(table, _codes(table.partition), _codes(table.user), left_queue, np.where(started, ended, NEVER))

    @property
    def started(self) -> Int64:
        """Rows of the jobs whose wait is recorded, by submission."""
        table = self.table
        return np.flatnonzero((table.start != ABSENT) & (table.start >= table.submit))

    def wait_hours(self, rows: Int64) -> Float64:
        """Waits in seconds; shape as ``rows``."""
        return np.asarray((self.table.start[rows] - self.table.submit[rows]) / 3_600)

    def recent(self, rows: Int64) -> list[RecentWaits]:
        """For each row the waits of the last jobs of its partition that had started before its submission."""
        table, known = self.table, self.started
        ledger = CumulativeWeights(self.partition[known], table.start[known], np.ones(len(known)))
        first, last = ledger.places(self.partition[rows], table.submit[rows])
        ordered = known[ledger.rows]
        start = table.start[ordered]
        wait = start - wait_began(table.submit[ordered], table.eligible[ordered], start)
        nodes, limit = table.nodes[ordered].astype(np.int64), table.limit[ordered]
        found = []
        for low, high in zip(np.maximum(first, last - SEARCHED).tolist(), last.tolist(), strict=True):
            part = slice(low, high)
            found.append(RecentWaits(start[part], wait[part], nodes[part], limit[part]))
        return found


def _codes(names: Names) -> Int64:
    return names.codes.astype(np.int64) + 1


Float32 = NDArray[np.float32]

ONE_HOUR, DAY, WEEK = 3_600, 86_400, 7 * 86_400
LAST = (1, 5, 20)
"""Number of a user's last waits that are averaged."""


def features(records: WaitRecords, rows: Int64, recent: list[RecentWaits]) -> Float32:
    """Shape (rows, features). ``recent``: the waits known at each of the submissions; ``nan``: no wait."""
    columns = [*_asked(records.table, rows), *_queued(records, rows), *_of_user(records, rows)]
    return np.column_stack([*columns, _waited(records.table, rows, recent)]).astype(np.float32)


def _asked(table: JobTable, rows: Int64) -> Iterator[Float64]:
    """Size, limit and hour."""
    for amount in (table.nodes, table.cpus, table.limit, table.memory_mb, table.gres.sum(axis=1)):
        yield np.log1p(np.maximum(amount[rows], 0).astype(np.float64))
    for period in (DAY, WEEK):
        turn = 2 * np.pi * (table.submit[rows] % period) / period
        yield np.sin(turn)
        yield np.cos(turn)


def _queued(records: WaitRecords, rows: Int64) -> Iterator[Float64]:
    """The queue of the partition and of the user just before: jobs, size, and work by the limits."""
    table, time = records.table, records.table.submit
    began = table.start >= 0
    for group in (records.partition, records.user):
        for weight in _weights(table):
            pending = PresentWeights(group, time, records.left_queue, weight)
            running = PresentWeights(group[began], table.start[began], records.left[began], weight[began])
            for tally in (pending, running):
                yield np.log1p(np.maximum(tally.at(group[rows], time[rows]), 0))
        arrived = CumulativeWeights(group, time, np.ones(len(table)))
        for span in (ONE_HOUR, DAY):
            lately = arrived.before(group[rows], time[rows]) - arrived.before(group[rows], time[rows] - span)
            yield np.log1p(lately)


def _weights(table: JobTable) -> tuple[Float64, ...]:
    cpus = np.maximum(np.where(table.cpus > 0, table.cpus, table.nodes), 0).astype(np.float64)
    return np.ones(len(table)), cpus, cpus * np.maximum(table.limit, 0) / ONE_HOUR


def _of_user(records: WaitRecords, rows: Int64) -> Iterator[Float64]:
    """The last waits of the user, in logarithms of hours; -1 without any."""
    table, known = records.table, records.started
    ledger = CumulativeWeights(records.user[known], table.start[known], np.ones(len(known)))
    first, last = ledger.places(records.user[rows], table.submit[rows])
    ordered = known[ledger.rows]
    sums = np.concatenate([[0.0], np.cumsum(records.wait_hours(ordered))])
    for count in LAST:
        low = np.maximum(first, last - count)
        mean = (sums[last] - sums[low]) / np.maximum(last - low, 1)
        yield np.where(last > low, np.log1p(np.maximum(mean, 0)), -1.0)


def _waited(table: JobTable, rows: Int64, recent: list[RecentWaits]) -> Float64:
    """Of the job's class and of all: median, P90 and mean, in logarithms of hours; shape (rows, 6)."""
    found = np.full((len(rows), 6), np.nan)
    for place, (row, known) in enumerate(zip(rows.tolist(), recent, strict=True)):
        if len(known):
            found[place, :3] = _summed_up(class_waits(known, asked_of(table, row)).wait)
            found[place, 3:] = _summed_up(known.wait[-100:])
    logs: Float64 = np.log1p(found)
    return logs


def asked_of(table: JobTable, row: int) -> JobRequest:
    """Class of a job."""
    return JobRequest("", "", int(table.limit[row]), max(1, int(table.nodes[row])))


def _summed_up(waits: Int64) -> tuple[float, float, float]:
    hours = waits / ONE_HOUR
    median, high = np.quantile(hours, (0.5, 0.9))
    return float(median), float(high), float(hours.mean())


HOUR = 3_600
COUNTED = 100
"""Number of jobs whose mean wait is taken."""

ROUNDS, PATIENCE = 400, 30
PARAMETERS = {
    "eta": 0.06,
    "max_depth": 6,
    "min_child_weight": 20,
    "subsample": 0.5,
    "colsample_bytree": 0.5,
    "max_bin": 64,
}


def by_mean(recent: list[RecentWaits]) -> Float64:
    """The mean wait of the last jobs, shape (rows, levels); 0 without any."""
    means = [known.wait[-COUNTED:].mean() / HOUR if len(known) else 0.0 for known in recent]
    return np.repeat(np.array(means)[:, None], len(LEVELS), axis=1)


def by_class(table: JobTable, rows: Int64, recent: list[RecentWaits]) -> Float64:
    """Quantiles of the last waits of the job's class, shape (rows, levels); 0 without any."""
    found = np.zeros((len(rows), len(LEVELS)))
    for place, (row, known) in enumerate(zip(rows.tolist(), recent, strict=True)):
        if len(known):
            found[place] = np.quantile(class_waits(known, asked_of(table, row)).wait / HOUR, LEVELS)
    return found


def by_trees(
    teaching: tuple[Float32, Float64], choosing: tuple[Float32, Float64], asked: Float32, seed: int
) -> Float64:
    """Boosted trees under the quantile loss on log(1 + hours); ``choosing`` decides the number of rounds.

    Shape (rows of ``asked``, levels). Raises ``MissingExtra`` without xgboost.
    """
    try:
        import xgboost
    except ModuleNotFoundError:
        raise MissingExtra("learning waits", "train", "mirage-xgboost") from None
    parameters: dict[str, Any] = PARAMETERS | {
        "objective": "reg:quantileerror",
        "quantile_alpha": np.array(LEVELS),
        "tree_method": "hist",
        "seed": seed,
        # Few rows: on a busy machine threads would wait for one another longer than they work.
        "nthread": 1,
    }
    known, check = (xgboost.DMatrix(rows, np.log1p(hours)) for rows, hours in (teaching, choosing))
    watched = xgboost.train(
        parameters,
        known,
        ROUNDS,
        evals=[(check, "choosing")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    rows, hours = np.concatenate([teaching[0], choosing[0]]), np.concatenate([teaching[1], choosing[1]])
    booster = xgboost.train(parameters, xgboost.DMatrix(rows, np.log1p(hours)), watched.best_iteration + 1)
    found = np.expm1(booster.inplace_predict(asked).astype(np.float64))
    # Quantiles learned one by one may cross; sorted they are never worse.
    return np.sort(np.maximum(found, 0.0), axis=1)


def by_lookahead(records: WaitRecords, cluster: ClusterConfig, rows: Int64, seed: int = 0) -> Float64:
    """Look-ahead from the recorded queue of each submission, shape (rows, levels); ``nan`` where it rejects.

    Raises ``ConfigError`` for a cluster that does not have the partitions of the trace.
    """
    predictor = Lookahead(cluster, seed)
    found = np.full((len(rows), len(LEVELS)), np.nan)
    for place, row in enumerate(rows.tolist()):
        observation = recorded_observation(records, cluster, row, predictor.wants.history)
        try:
            prediction = predictor.predict(observation)
        except (ValueError, SubmissionRejected):  # too little history; not as configured
            continue
        if isinstance(prediction, WaitForecast):
            found[place] = [(prediction.at(level) - observation.time) / HOUR for level in LEVELS]
    return found


def recorded_observation(records: WaitRecords, cluster: ClusterConfig, row: int, span: int) -> Observation:
    """The state just before a job's submission: the queue, and the jobs of the last ``span`` seconds."""
    table, now = records.table, int(records.table.submit[row])
    pending = np.flatnonzero((table.submit < now) & (records.left_queue >= now))
    running = np.flatnonzero((table.start != ABSENT) & (table.start < now) & (records.left >= now))
    places = _partitions(table, cluster)
    snapshot = Snapshot(
        time=now,
        pending=_columns(records, pending, places, np.full(len(pending), ABSENT, dtype=np.int64)),
        running=_columns(records, running, places, table.start[running]),
        partitions=tuple(_state(table, cluster, running, places, name) for name in _names(cluster)),
        users=table.user.vocabulary,
        partition_names=_names(cluster),
        qos_names=("",),
    )
    request = JobRequest(
        name=table.name[row] or "job",
        user=table.user[row] or "nobody",
        limit=int(table.limit[row]),
        nodes=max(1, int(table.nodes[row])),
        partition=_names(cluster)[places[row]],
        exclusive=True,
    )
    past = table.take((table.submit < now) & (table.submit >= now - span))
    return Observation(now, snapshot, None, request, RecentWaits.none(), history=_known(past, now))


def _names(cluster: ClusterConfig) -> tuple[str, ...]:
    return tuple(partition.name for partition in cluster.partitions)


def _partitions(table: JobTable, cluster: ClusterConfig) -> Int64:
    """Index of each job's partition in the cluster; its only one where the trace has no partitions."""
    names = _names(cluster)
    if len(names) == 1:
        return np.zeros(len(table), dtype=np.int64)
    unknown = {name for name in table.partition.vocabulary if name not in names}
    if unknown or (table.partition.codes < 0).any():
        told = ", ".join(sorted(unknown)) or "jobs without one"
        raise ConfigError(
            "--cluster", f"{cluster.name} has the partitions {', '.join(names)}; the trace has {told}"
        )
    place = np.array([names.index(name) for name in table.partition.vocabulary], dtype=np.int64)
    return np.asarray(place[table.partition.codes])


def _state(table: JobTable, cluster: ClusterConfig, running: Int64, places: Int64, name: str) -> PartitionState:
    partition = next(partition for partition in cluster.partitions if partition.name == name)
    total = len(partition.nodes)
    used = int(table.nodes[running[places[running] == _names(cluster).index(name)]].sum())
    return PartitionState(name, total, max(0, total - used), min(used, total), 0)


def _columns(records: WaitRecords, rows: Int64, places: Int64, start: Int64) -> JobColumns:
    table = records.table
    users = hashed_users([*table.user.vocabulary, ""])[table.user.codes[rows]]
    names = hashed_names([*table.name.vocabulary, ""])[table.name.codes[rows]]
    eligible = np.where(table.eligible[rows] != ABSENT, table.eligible[rows], table.submit[rows])
    return JobColumns(
        job_id=rows + 1,
        user=table.user.codes[rows].astype(np.int64),
        partition=places[rows],
        qos=np.zeros(len(rows), dtype=np.int64),
        nodes=table.nodes[rows].astype(np.int64),
        limit=table.limit[rows],
        submit=table.submit[rows],
        eligible=eligible,
        start=start,
        priority=np.maximum(table.priority[rows], 0),
        series=series_of(users, names),
    )


def _known(past: JobTable, now: int) -> JobTable:
    """The same jobs in their state at ``now``."""
    started = (past.start != ABSENT) & (past.start < now)
    ended = (past.end != ABSENT) & (past.end < now)
    open_ended = np.where(started, int(JobState.RUNNING), int(JobState.PENDING))
    return replace(
        past,
        start=np.where(started, past.start, ABSENT),
        end=np.where(ended, past.end, ABSENT),
        state=np.where(ended, past.state, open_ended).astype(np.int8),
    )
