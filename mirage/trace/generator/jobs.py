"""Batches become jobs: submissions, runtimes, ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.arrivals import SILVER, BatchPlan, even, pick
from mirage.trace.generator.model import SHORT_RUN, draw
from mirage.trace.generator.series import NormalScores, SeriesTable, assign_series

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int32, Int64
    from mirage.trace.generator.model import Correlation, Floats, JobClass, WorkloadModel

TIMEOUT_SLACK = 5
"""A job that ran to within this many seconds of its time limit counts as a timeout."""
BLOCK = 128
"""Jobs of one class among which runtimes have the fitted distribution, so that load keeps its level."""


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """Jobs as columns, in order of submission."""

    series: Int64
    user: Int64
    name: Int64
    submit: Int64
    nodes: Int64
    limit: Int64
    stay: Int64
    """Seconds run; for jobs cancelled while pending, seconds in the queue."""
    ran: NDArray[np.bool_]
    state: NDArray[np.int8]
    exit_code: Int32


def draw_jobs(model: WorkloadModel, plan: BatchPlan, rng: np.random.Generator) -> DrawnJobs:
    """Draw the jobs of all batches."""
    batch = np.repeat(np.arange(len(plan.size)), plan.size)
    job_class = plan.job_class[batch]
    offset = _offsets(model, plan.size, batch, rng)
    series_weight, own = _runtime_scores(model, plan, batch, rng)
    last = np.cumsum(plan.size) - 1
    series = assign_series(model, plan, NormalScores(series_weight, own, last, offset[last]), rng)
    of_job = series.of_batch[batch]
    cancel = _cancel_scores(model.habits.cancel_correlation, batch, of_job, rng)
    score = series_weight * series.score[of_job] + own
    fate = _fates(model, job_class, series.limit[of_job], (cancel, score), rng)
    submit = np.floor(series.time[batch] + offset).astype(np.int64)
    return _in_order(series, of_job, submit, fate)


def standard_log_size(size: Int64, job_class: Int64) -> Floats:
    """Logarithm of each job's batch size, standardised over the jobs of its class."""
    log = np.log(size)
    count = np.maximum(np.bincount(job_class), 1)
    mean = np.bincount(job_class, log) / count
    variance = np.bincount(job_class, log**2) / count - mean**2
    return np.asarray((log - mean[job_class]) / np.sqrt(np.maximum(variance, 1e-9))[job_class])


def _runtime_scores(
    model: WorkloadModel, plan: BatchPlan, batch: Int64, rng: np.random.Generator
) -> tuple[float, Floats]:
    """Weight of the series' normal score in a job's, and the rest of the job's."""
    series_weight, batch_weight, job_weight = model.habits.runtime_correlation.loadings
    of_batch = np.zeros(len(plan.size))
    for c in range(len(model.classes)):
        rows = np.flatnonzero(plan.job_class == c)
        of_batch[rows] = _normal(even(len(rows), rng, SILVER))
    drawn = batch_weight * of_batch[batch] + job_weight * rng.standard_normal(len(batch))
    effect = model.habits.size_effect
    rest = math.sqrt(1 - effect**2)
    sizes = standard_log_size(plan.size[batch], plan.job_class[batch])
    return series_weight * rest, np.asarray(rest * drawn + effect * sizes)


def _normal(uniform: Floats) -> Floats:
    """Normal scores of probabilities, from a table."""
    table = np.linspace(0.0005, 0.9995, 2000)
    return np.interp(uniform, table, [NormalDist().inv_cdf(u) for u in table.tolist()])


@dataclass(frozen=True, slots=True)
class _Fates:
    stay: Int64
    ran: NDArray[np.bool_]
    state: NDArray[np.int8]
    exit_code: Int32


def _in_order(series: SeriesTable, of_job: Int64, submit: Int64, fate: _Fates) -> DrawnJobs:
    """The jobs sorted by submission."""
    order = np.argsort(submit, kind="stable")
    chosen = of_job[order]
    return DrawnJobs(
        series=chosen,
        user=series.user[chosen],
        name=series.name[chosen],
        submit=submit[order],
        nodes=series.nodes[chosen],
        limit=series.limit[chosen],
        stay=fate.stay[order],
        ran=fate.ran[order],
        state=fate.state[order],
        exit_code=fate.exit_code[order],
    )


def _offsets(model: WorkloadModel, size: Int64, batch: Int64, rng: np.random.Generator) -> Floats:
    """Seconds from the batch's first submission to each job's."""
    _, batch_weight, job_weight = model.habits.gap_correlation.loadings
    score = _own_scores(batch_weight, job_weight, batch, len(size), rng)
    gap = draw(model.habits.gaps, uniform_ranks(score, np.zeros(len(score), dtype=np.int64)))
    first = np.cumsum(size) - size
    gap[first] = 0
    total = np.cumsum(gap)
    return np.asarray(total - np.repeat(total[first], size))


def _own_scores(
    batch_weight: float, job_weight: float, batch: Int64, batches: int, rng: np.random.Generator
) -> Floats:
    """The batch's and the job's own parts of each job's normal score."""
    shared = rng.standard_normal(batches)[batch]
    return np.asarray(batch_weight * shared + job_weight * rng.standard_normal(len(batch)))


def _cancel_scores(correlation: Correlation, batch: Int64, series: Int64, rng: np.random.Generator) -> Floats:
    """Normal scores whose highest are cancelled: users withdraw batches, not single jobs."""
    weights = correlation.loadings
    of_series = rng.standard_normal(int(series.max(initial=-1)) + 1)[series]
    own = _own_scores(weights[1], weights[2], batch, int(batch.max(initial=-1)) + 1, rng)
    return np.asarray(weights[0] * of_series + own)


def uniform_ranks(score: Floats, stratum: Int64) -> Floats:
    """Ranks of ``score`` within each stratum as probabilities in (0, 1).

    Whatever the scores' correlation, every stratum then has exactly the fitted distribution.
    """
    order = np.lexsort((score, stratum))
    counts = np.bincount(stratum) if len(stratum) else np.zeros(0, dtype=np.int64)
    first = (np.cumsum(counts) - counts)[stratum[order]]
    uniform = np.empty(len(score))
    uniform[order] = (np.arange(len(score)) - first + 0.5) / counts[stratum[order]]
    return uniform


def _blocks(job_class: Int64) -> Int64:
    """A number for every ``BLOCK`` jobs of one class in a row; a last short block joins the one before."""
    order = np.argsort(job_class, kind="stable")
    counts = np.bincount(job_class)
    place = np.arange(len(job_class)) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = np.maximum(counts // BLOCK, 1)
    number = np.minimum(place // BLOCK, np.repeat(blocks, counts) - 1)
    stratum = np.empty(len(job_class), dtype=np.int64)
    stratum[order] = number + np.repeat(np.cumsum(blocks) - blocks, counts)
    return stratum


def _fates(
    model: WorkloadModel,
    job_class: Int64,
    limit: Int64,
    scores: tuple[Floats, Floats],
    rng: np.random.Generator,
) -> _Fates:
    """How each job ends; ``scores`` rank the jobs for cancelling and for runtime."""
    count = len(limit)
    stratum = _blocks(job_class)
    cancel_rank = uniform_ranks(scores[0], stratum)
    cancelled_share = np.array([c.cancelled_pending for c in model.classes])
    ran = cancel_rank < 1 - cancelled_share[job_class]
    rank = np.zeros(count)
    rank[ran] = uniform_ranks(scores[1][ran], stratum[ran])
    stay = np.rint(draw(model.habits.leave, rng.random(count)) * 3600).astype(np.int64)
    state = np.full(count, JobState.CANCELLED, dtype=np.int8)
    for c, described in enumerate(model.classes):
        rows = np.flatnonzero((job_class == c) & ran)
        stay[rows], state[rows] = _runs(described, limit[rows], rank[rows], rng)
    return _Fates(stay, ran, state, _exit_codes(model, state, rng))


def _runs(
    described: JobClass, limit: Int64, rank: Floats, rng: np.random.Generator
) -> tuple[Int64, NDArray[np.int8]]:
    """Seconds run and final state of the jobs of one class that ran."""
    below = 1 - described.timeout
    timeout = rank >= below
    fraction = 10 ** draw(described.runtime, rank / max(below, 1e-9))
    ceiling = np.maximum(limit - TIMEOUT_SLACK - 1, 0)
    seconds = np.where(timeout, limit, np.minimum(np.rint(fraction * limit).astype(np.int64), ceiling))
    failed_share = np.where(seconds < SHORT_RUN, described.failed_short, described.failed_long)
    luck = rng.random(len(rank))
    state = np.full(len(rank), JobState.COMPLETED, dtype=np.int8)
    state[luck < failed_share] = JobState.FAILED
    state[luck > 1 - described.cancelled_running] = JobState.CANCELLED
    state[timeout] = JobState.TIMEOUT
    return seconds, state


def _exit_codes(model: WorkloadModel, state: NDArray[np.int8], rng: np.random.Generator) -> Int32:
    """Exit codes; only failed jobs have one other than 0."""
    codes = np.zeros(len(state), dtype=np.int32)
    failed = np.flatnonzero(state == JobState.FAILED)
    weights = np.array([e.weight for e in model.exit_codes])
    drawn = np.array([e.code for e in model.exit_codes], dtype=np.int32)
    codes[failed] = drawn[pick(weights, even(len(failed), rng))]
    return codes


def starts_and_ends(jobs: DrawnJobs) -> tuple[Int64, Int64]:
    """Times for the table: each job that ran starts as it is submitted; the wait is the simulator's."""
    return np.where(jobs.ran, jobs.submit, ABSENT), jobs.submit + jobs.stay
