"""Features of a job at its submission, from the recorded history alone, for trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import JobRequest
from mirage.features.waitclass import class_waits
from mirage.training.evaluation.waits.records import Ledger, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.decision import RecentWaits
    from mirage.domain.jobtable import JobTable
    from mirage.training.evaluation.waits.records import Int64, Records

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

HOUR, DAY, WEEK = 3_600, 86_400, 7 * 86_400
LAST = (1, 5, 20)
"""Number of a user's last waits that are averaged."""


def features(records: Records, rows: Int64, recent: list[RecentWaits]) -> Float32:
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


def _queued(records: Records, rows: Int64) -> Iterator[Float64]:
    """The queue of the partition and of the user just before: jobs, size, and work by the limits."""
    table, time = records.table, records.table.submit
    began = table.start >= 0
    for group in (records.partition, records.user):
        for weight in _weights(table):
            pending = Tally(group, time, records.left_queue, weight)
            running = Tally(group[began], table.start[began], records.left[began], weight[began])
            for tally in (pending, running):
                yield np.log1p(np.maximum(tally.at(group[rows], time[rows]), 0))
        arrived = Ledger(group, time, np.ones(len(table)))
        for span in (HOUR, DAY):
            lately = arrived.before(group[rows], time[rows]) - arrived.before(group[rows], time[rows] - span)
            yield np.log1p(lately)


def _weights(table: JobTable) -> tuple[Float64, ...]:
    cpus = np.maximum(np.where(table.cpus > 0, table.cpus, table.nodes), 0).astype(np.float64)
    return np.ones(len(table)), cpus, cpus * np.maximum(table.limit, 0) / HOUR


def _of_user(records: Records, rows: Int64) -> Iterator[Float64]:
    """The last waits of the user, in logarithms of hours; -1 without any."""
    table, known = records.table, records.started
    ledger = Ledger(records.user[known], table.start[known], np.ones(len(known)))
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
    hours = waits / HOUR
    median, high = np.quantile(hours, (0.5, 0.9))
    return float(median), float(high), float(hours.mean())
