"""Forecasts of recorded waits: by recent waits, by trees, by look-ahead. All return hours at ``LEVELS``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import Observation, RecentWaits, WaitForecast
from mirage.domain.errors import ConfigError, MissingExtra, SubmissionRejected
from mirage.domain.job import ABSENT, JobRequest, JobState
from mirage.domain.series import hashed_names, hashed_users, series_of
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.waitclass import class_waits
from mirage.predictors.lookahead import Lookahead
from mirage.training.evaluation.figures import LEVELS
from mirage.training.evaluation.waits.features import asked_of

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.waits.features import Float32
    from mirage.training.evaluation.waits.records import Int64, Records

Float64 = NDArray[np.float64]

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


def by_lookahead(records: Records, cluster: ClusterConfig, rows: Int64, seed: int = 0) -> Float64:
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


def recorded_observation(records: Records, cluster: ClusterConfig, row: int, span: int) -> Observation:
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


def _columns(records: Records, rows: Int64, places: Int64, start: Int64) -> JobColumns:
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
