"""Observations, Slurm's planned starts, predictions and decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NEVER, Job, JobRequest, Seconds
from mirage.domain.jobtable import JobTraits

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import Snapshot


class PlanStatus(StrEnum):
    """Status of Slurm's planned start."""

    KNOWN = "known"
    BEYOND_WINDOW = "Slurm plans no start within its backfill window"
    NOT_PERMITTED = "Slurm cannot be queried for the plan as the owner"
    REJECTED = "Slurm rejects such a job"
    UNAVAILABLE = "Slurm does not answer the query for its plan"
    NOT_ASKED = "Slurm has not been queried for its plan yet"


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When Slurm would start a job that is submitted now."""

    status: PlanStatus = PlanStatus.NOT_ASKED
    start: Seconds = ABSENT
    """``ABSENT`` unless the plan is known."""
    asked_at: Seconds = ABSENT
    """When Slurm was asked; an older plan is the one for a job submitted then."""

    @classmethod
    def known(cls, start: Seconds, asked_at: Seconds = ABSENT) -> PlannedStart:
        """Return a plan that starts at ``start``, as Slurm answered at ``asked_at``."""
        return cls(PlanStatus.KNOWN, start, asked_at)

    @property
    def is_known(self) -> bool:
        """Whether Slurm has planned a start."""
        return self.status is PlanStatus.KNOWN


NO_PLAN = PlannedStart()
"""Nobody asked."""


Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]

_NOT_TOLD = JobTraits.unknown(0)


@dataclass(frozen=True, slots=True)
class RecentWaits:
    """Waits of jobs that started recently, as columns of equal length, oldest start first."""

    start: Int64
    wait: Int64
    """Seconds in which the queue alone kept the job: from when it was eligible to its start."""
    nodes: Int64
    limit: Int64
    """Requested walltime in seconds."""
    partition: str = ""
    """Partition of the jobs, comma-separated if several; empty: partitions are not distinguished."""
    traits: JobTraits = _NOT_TOLD
    """Left out: not known of any."""
    usual_account: str = ""
    """Account of a request that names none, as far as its predecessor shows it; empty: not known."""
    usual_qos: str = ""
    """The same of its QOS."""

    def __post_init__(self) -> None:
        if self.traits is _NOT_TOLD:
            object.__setattr__(self, "traits", JobTraits.unknown(len(self)))

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def none(cls, partition: str = "") -> RecentWaits:
        """Return empty columns: no job has started yet."""
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, partition)

    def last(self, count: int) -> RecentWaits:
        """The ``count`` jobs started last."""
        rows = slice(max(0, len(self) - count), None)
        columns = {name: getattr(self, name)[rows] for name in _WAIT_COLUMNS}
        return replace(self, traits=self.traits.take(rows), **columns)


_WAIT_COLUMNS = ("start", "wait", "nodes", "limit")


@dataclass(frozen=True, slots=True)
class Window:
    """The queue of one partition at the last snapshots, summed up: one row a snapshot, oldest first."""

    times: Int64
    """Shape (T,), seconds."""
    rows: Float32
    """Shape (T, number of ``mirage.features.summary.COLUMNS``)."""

    def __len__(self) -> int:
        return len(self.times)


NO_LIMIT = 2**31 - 1
"""No limit on the owner's running jobs."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Present grants of the controller to an owner, beyond the queue; ``nan`` and ``ABSENT`` where unknown."""

    fair_share: float = float("nan")
    """The fair-share factor, within 0 and 1; ``nan`` also where Slurm computes none."""
    jobs_left: int = ABSENT
    """Number of further jobs of the owner that may run at the same time; ``NO_LIMIT``: no bound."""
    reserved_nodes: int = ABSENT
    """Nodes of the partition that reservations of others take within the successor's limit from now."""
    unreserved: Seconds = ABSENT
    """Time from which reservations of others leave enough nodes of the partition for the successor's limit.

    ``ABSENT`` also where they do so now.
    """


@dataclass(frozen=True, slots=True)
class Wants:
    """Inputs that a predictor requires of an observation. Some of them need an RPC."""

    waits: int = 0
    """Number of recent waits."""
    queue: bool = False
    """The snapshot's jobs and partitions; our own links are always there."""
    plan: bool = False
    """Slurm's own estimate of the start."""
    window: bool = False
    """The summed-up queue of the last day."""
    history: Seconds = 0
    """Required length of the history of all users' jobs, by submission, s."""
    standing: bool = False
    """Grants of the controller to the owner."""

    def __or__(self, other: Wants) -> Wants:
        return Wants(
            max(self.waits, other.waits),
            self.queue or other.queue,
            self.plan or other.plan,
            self.window or other.window,
            max(self.history, other.history),
            self.standing or other.standing,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a predictor may know at one time about one handover."""

    time: Seconds
    snapshot: Snapshot
    predecessor: Job | None
    """The running (or just ended) link; ``None`` for the first link of a chain."""
    successor: JobRequest
    """The request that would be submitted."""
    waits: RecentWaits
    """The last jobs of the successor's partition that started before now, as many as the predictor wants."""
    planned_start: PlannedStart = NO_PLAN
    """Slurm's planned start of the successor, for predictors that require it, or why Slurm plans none."""
    window: Window | None = None
    """For predictors that want it; its last row is the snapshot's or a little older."""
    history: JobTable | None = None
    """For predictors that require it: recently submitted jobs, with their present state."""
    standing: Standing = field(default_factory=Standing)


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """Quantiles of the time at which the successor would start if it were submitted now."""

    levels: tuple[float, ...]
    """Ascending, within 0 and 1."""
    starts: tuple[float, ...]
    """Seconds, one per level, never descending."""
    basis: str = field(default="", compare=False, repr=False)
    """Basis of the forecast, for the reader: ``12 waits of partition v100, any size``."""
    rule: str = field(default="", compare=False, repr=False)
    """When a rule that ignores the queue submits; the start in the forecast is then no prediction."""

    @classmethod
    def point(cls, start: float, basis: str = "", rule: str = "") -> WaitForecast:
        """A forecast that knows one time only, and gives it at every level."""
        return cls((0.5,), (start,), basis, rule)

    def at(self, level: float) -> float:
        """The start at a level: linear between the levels known, constant outside them."""
        if len(self.starts) == 1:
            return self.starts[0]
        return float(np.interp(level, self.levels, self.starts))


@dataclass(frozen=True, slots=True)
class ActionScores:
    """Score of each action now (higher is better), by a trained policy or an oracle."""

    submit: float
    hold: float
    forecast: WaitForecast | None = None
    """When the successor would start if submitted now, from predictors that know it as well; for the reader."""
    basis: str = field(default="", compare=False, repr=False)
    """Why these scores, for the reader: ``2 of 3 would submit now: ...``."""


Prediction = WaitForecast | ActionScores


def forecast_of(prediction: Prediction | None) -> WaitForecast | None:
    """The forecast that it is, or has next to its scores; ``None``: no start is predicted."""
    return prediction.forecast if isinstance(prediction, ActionScores) else prediction


def checked(prediction: Prediction) -> Prediction:
    """The same prediction. Raises ``ValueError`` for one that says nothing (NaN, levels without starts)."""
    if isinstance(prediction, ActionScores):
        numbers: tuple[float, ...] = (prediction.submit, prediction.hold)
    elif isinstance(prediction, WaitForecast):
        numbers = prediction.starts
    else:
        raise TypeError(f"predicted {type(prediction).__name__}, not a WaitForecast or ActionScores")
    if not numbers or any(number != number for number in numbers):  # noqa: PLR0124 (NaN differs from itself)
        raise ValueError(f"predicted nothing usable: {prediction}")
    return prediction


@dataclass(frozen=True, slots=True)
class Submit:
    """The decision to submit the successor in this cycle, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Defer:
    """The decision not to submit in this cycle, and why."""

    reason: str
    until: Seconds = NEVER
    """When the same forecast of the wait would submit; ``NEVER`` where that was not computed."""


Decision = Submit | Defer
