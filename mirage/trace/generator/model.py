"""The workload model: the statistics of a queue from which job tables are drawn, and its file.

A **batch** is a run of submissions of one series by one user with gaps of at most ``BATCH_GAP``; a
**series** is one user's jobs of one name, size and limit. Batches arrive as a Poisson process whose rate
follows the hour of the week, the week and a random factor a day; each belongs to a class of size and
limit, and either opens a series, returns to an earlier one, or continues a chain manually.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mirage.atomic_file import read_regular
from mirage.documentreading import faults_of, reader_of
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Quantiles = tuple[float, ...]
"""Values of a quantity at the probabilities ``LEVELS``, ascending."""

Floats = NDArray[np.float64]

LEVELS: Quantiles = (
    *(0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 1.0),
)
HOURS_A_WEEK = 168
BATCH_GAP = 3600
"""Longest pause between two submissions of one batch, in seconds."""
SHORT_RUN = 60
"""A job that runs shorter than this (seconds) counts as one that broke at its start."""

_CLOSED = {"extra": "forbid"}
_SIGNED = {"runtime", "lateness", "size_effect", "start"}
_SHARES = {
    *("new_series", "cancelled_pending", "timeout", "failed_short", "failed_long", "cancelled_running"),
    *("new_user", "same_class", "same_name", "size_effect", "alone", "continued"),
}


def draw(quantiles: Quantiles, uniform: Floats) -> Floats:
    """Values of the quantity at the probabilities ``uniform``, linear between the levels."""
    return np.interp(uniform, LEVELS, quantiles)


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One request: nodes and limit (seconds), with its share of the class's jobs."""

    __pydantic_config__: ClassVar = _CLOSED
    nodes: int
    limit: int
    weight: float


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Jobs in a batch, with the share of the class's batches of about this size."""

    __pydantic_config__: ClassVar = _CLOSED
    jobs: int
    weight: float


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of similar size and limit. Shares are of the class's jobs unless stated otherwise."""

    __pydantic_config__: ClassVar = _CLOSED
    shares: tuple[float, ...]
    """Share of all batches, one value a week."""
    shapes: tuple[RequestShape, ...]
    batch_sizes: tuple[BatchSize, ...]
    new_series: float
    """Share of its batches that open a series."""
    series_return: Quantiles
    """Hours from a series' previous batch to its next, hand-made chains left out."""
    cancelled_pending: float
    timeout: float
    """Share of the jobs that ran which met their limit."""
    runtime: Quantiles
    """log10(seconds run / limit) of those that ran and did not meet it."""
    failed_short: float
    """Share of failures among those that ended within ``SHORT_RUN``."""
    failed_long: float
    """The same among the others that did not meet their limit."""
    cancelled_running: float
    """Share cancelled among all that did not meet their limit."""


@dataclass(frozen=True, slots=True)
class ArrivalModel:
    """When batches come."""

    __pydantic_config__: ClassVar = _CLOSED
    start: int
    """Seconds since the epoch, a midnight UTC."""
    days: int
    batches_per_day: float
    hour_of_week: tuple[float, ...]
    """Rate relative to the mean, 168 values from Monday 00:00 UTC."""
    weeks: tuple[float, ...]
    """Rate relative to the mean, one value a week from ``start``."""
    day_dispersion: float
    """Squared coefficient of variation of the day's random factor."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """How alike (intra-class correlation of normal scores) the jobs of one series and of one batch are."""

    __pydantic_config__: ClassVar = _CLOSED
    series: float
    batch: float
    """At least ``series``: jobs of one batch also share their series."""

    def __post_init__(self) -> None:
        if not 0 <= self.series <= self.batch <= 1:
            raise ValueError(f"0 <= series {self.series} <= batch {self.batch} <= 1 does not hold")

    @property
    def loadings(self) -> tuple[float, float, float]:
        """Weights of the series', the batch's and the job's own normal scores; their squares add to 1."""
        return math.sqrt(self.series), math.sqrt(self.batch - self.series), math.sqrt(1 - self.batch)


@dataclass(frozen=True, slots=True)
class Habits:
    """How users come back."""

    __pydantic_config__: ClassVar = _CLOSED
    new_user: float
    """Share of new series that belong to a user never seen before."""
    same_class: float
    """Share of the others whose user is already known in the series' class."""
    same_name: float
    """Share of the series of known users that take over a name the user has used."""
    user_return: Quantiles
    """Hours from a user's previous batch to the first of a new series in a class new to the user."""
    class_return: Quantiles
    """Hours from a user's previous batch in a class to the first of a new series in that class."""
    gaps: Quantiles
    """Seconds between the submissions of a batch."""
    gap_correlation: Correlation
    runtime_correlation: Correlation
    cancel_correlation: Correlation
    size_effect: float
    """Correlation of the normal score of runtime with the logarithm of the batch's size, class by class."""
    alone: float
    """Share of the returning batches of long jobs that find no unfinished job of their series."""
    most_outstanding: int
    """Nodes of unfinished long jobs above which a user submits no further batch."""
    leave: Quantiles
    """Hours that a job cancelled while pending stayed in the queue."""
    accounts: int


@dataclass(frozen=True, slots=True)
class HandChains:
    """Services longer than the limit, kept going manually: the user submits the next job around the end."""

    __pydantic_config__: ClassVar = _CLOSED
    min_limit: int
    """Only jobs with at least this limit (seconds) are continued."""
    continued: float
    """Share of the batches ending in a timeout that are."""
    lateness: Quantiles
    """Hours from the predecessor's end to the successor's submission; negative when submitted before."""
    wait: Quantiles
    """Hours that such jobs wait; places the predecessor's end, which the generator cannot know."""


@dataclass(frozen=True, slots=True)
class ExitCode:
    """An exit code and its share of the failed jobs."""

    __pydantic_config__: ClassVar = _CLOSED
    code: int
    weight: float


@dataclass(frozen=True, slots=True)
class Gres:
    """A generic resource of every node: ``name`` such as ``gpu:a100``."""

    __pydantic_config__: ClassVar = _CLOSED
    name: str
    per_node: int


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """Everything ``generate`` needs. Raises ``ValueError`` where its parts contradict each other."""

    __pydantic_config__: ClassVar = _CLOSED
    name: str
    source: str
    """What it was fitted to, for messages and notes."""
    partition: str
    nodes: int
    cpus_per_node: int
    gres: tuple[Gres, ...]
    arrivals: ArrivalModel
    classes: tuple[JobClass, ...]
    habits: Habits
    chains: HandChains
    exit_codes: tuple[ExitCode, ...]

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(f"workload model {self.name!r}: {problem}")

    def mean_batch(self) -> float:
        """Expected jobs in a batch."""
        return float(self._of_batches(mean_batch_size).sum())

    def mean_node_seconds(self) -> float:
        """Expected node-seconds a job runs, cancelled ones included."""
        return float(self._of_batches(mean_batch_work).sum() / self._of_batches(mean_batch_size).sum())

    def offered_load(self) -> float:
        """Expected node-seconds submitted over the model's span per node-second of the cluster."""
        jobs_a_day = self.arrivals.batches_per_day * self.mean_batch()
        return jobs_a_day * self.mean_node_seconds() / (86_400 * self.nodes)

    def _of_batches(self, mean: Callable[[JobClass], float]) -> Floats:
        """Each class's part of the mean over all batches."""
        weeks = np.array(self.arrivals.weeks)
        share = np.array([c.shares for c in self.classes])
        share = (share / share.sum(axis=0)) @ (weeks / weeks.sum())
        return np.asarray(share * [mean(c) for c in self.classes])


def mean_batch_size(job_class: JobClass) -> float:
    """Expected jobs in a batch of the class."""
    return _mean([(b.jobs, b.weight) for b in job_class.batch_sizes])


def mean_batch_work(job_class: JobClass) -> float:
    """Expected node-seconds that a batch of the class runs."""
    request = _mean([(s.nodes * s.limit, s.weight) for s in job_class.shapes])
    used = (1 - job_class.cancelled_pending) * _mean_fraction(job_class)
    return mean_batch_size(job_class) * request * used


def _mean(values: list[tuple[int, float]]) -> float:
    """Weighted mean of (value, weight) pairs."""
    return sum(v * w for v, w in values) / sum(w for _, w in values)


def _mean_fraction(job_class: JobClass) -> float:
    """Expected share of its limit that a job of the class runs."""
    middle = (np.arange(1000) + 0.5) / 1000
    below = float(np.mean(10 ** draw(job_class.runtime, middle)))
    return job_class.timeout + (1 - job_class.timeout) * below


def _problems(model: WorkloadModel) -> list[str]:
    """What is out of range or contradicts itself, in words."""
    return [*_numbers_amiss(model, ""), *_calendar_amiss(model), *_classes_amiss(model)]


def _numbers_amiss(value: object, place: str) -> list[str]:
    """Numbers that are not finite, below zero, or shares above one; ``place`` names ``value`` in the model."""
    if is_dataclass(value):
        inside = [(f"{place}.{f.name}".lstrip("."), getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, tuple):
        inside = [(f"{place}[{i}]", item) for i, item in enumerate(value)]
    else:
        return [] if not isinstance(value, int | float) or _in_range(value, place) else [f"{place} is {value}"]
    return [problem for name, item in inside for problem in _numbers_amiss(item, name)]


def _in_range(value: float, place: str) -> bool:
    field = place.rpartition(".")[2].partition("[")[0]
    low = -math.inf if field in _SIGNED else 0
    high = 0 if field == "runtime" else 1 if field in _SHARES else math.inf
    return math.isfinite(value) and low <= value <= high


def _calendar_amiss(model: WorkloadModel) -> list[str]:
    found = []
    calendar = model.arrivals
    if len(calendar.hour_of_week) != HOURS_A_WEEK or len(calendar.weeks) * 7 < calendar.days:
        found.append(f"arrivals need {HOURS_A_WEEK} hours and a value for each week of {calendar.days} days")
    rates = (calendar.batches_per_day, sum(calendar.hour_of_week), sum(calendar.weeks[len(calendar.weeks) // 2 :]))
    if calendar.days < 1 or min(rates) <= 0:
        found.append("arrivals need at least a day and a positive rate, also in the second half")
    return found


def _classes_amiss(model: WorkloadModel) -> list[str]:
    if not model.classes or not model.exit_codes or not model.habits.accounts:
        return ["needs job classes, exit codes and accounts"]
    named = [
        ("habits.user_return", model.habits.user_return),
        ("habits.class_return", model.habits.class_return),
        ("habits.gaps", model.habits.gaps),
        ("habits.leave", model.habits.leave),
        ("chains.lateness", model.chains.lateness),
        ("chains.wait", model.chains.wait),
        *((f"classes[{i}].runtime", c.runtime) for i, c in enumerate(model.classes)),
        *((f"classes[{i}].series_return", c.series_return) for i, c in enumerate(model.classes)),
    ]
    found = [f"{name} needs {len(LEVELS)} ascending values" for name, q in named if not _ascending(q)]
    if {len(c.shares) for c in model.classes} != {len(model.arrivals.weeks)}:
        found.append("every class needs a share for each of arrivals.weeks")
    elif min(np.sum([c.shares for c in model.classes], axis=0)) <= 0:
        found.append("in some week no class has a share")
    if sum(e.weight for e in model.exit_codes) <= 0:
        found.append("exit_codes need weights")
    return found + [
        f"classes[{i}] needs shapes (1 to {model.nodes} nodes, a limit) and batch_sizes, with weights"
        for i, c in enumerate(model.classes)
        if not _drawable(c, model.nodes)
    ]


def _ascending(quantiles: Quantiles) -> bool:
    return len(quantiles) == len(LEVELS) and all(a <= b for a, b in pairwise(quantiles))


def _drawable(job_class: JobClass, nodes: int) -> bool:
    """Return whether requests and batch sizes can be drawn on a cluster of ``nodes`` nodes."""
    shapes_fit = all(1 <= s.nodes <= nodes and s.limit > 0 for s in job_class.shapes)
    weights = sum(s.weight for s in job_class.shapes), sum(b.weight for b in job_class.batch_sizes)
    return shapes_fit and min(weights) > 0 and all(b.jobs >= 1 for b in job_class.batch_sizes)


def save_model(model: WorkloadModel, path: Path) -> None:
    """Write the model as JSON, numbers rounded to six significant digits."""
    path.write_text(json.dumps(_rounded(asdict(model)), indent=1) + "\n", encoding="utf-8")


def load_model(path: Path) -> WorkloadModel:
    """Read a model written by ``save_model``; raises ``ConfigError`` with file and key."""
    from pydantic import ValidationError

    try:
        text = read_regular(path)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    try:
        return reader_of(WorkloadModel).validate_json(text)
    except ValidationError as error:
        first = faults_of(error)[0]
        raise ConfigError(f"{path}: {first.key or 'the file'}", first.said) from error


def _rounded(value: object) -> object:
    """The same structure with floats cut to six significant digits."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: _rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
    return value
