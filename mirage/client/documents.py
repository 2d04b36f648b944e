"""Documents of the daemon as dataclasses.

Times are aware ``datetime``s, durations are seconds, ``None`` means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirage.client.records import Records


@dataclass(frozen=True, slots=True)
class Link:
    """One Slurm job of a chain."""

    index: int
    """Counts from 1."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_id: int | None = None
    job_state: str = ""
    """Slurm's state of the job."""
    submit: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    """While it runs: the end of its time limit."""
    exit_code: int | None = None
    looks: bool = False  # its script waits for the end of the link before it
    reason: str = ""
    """Reason of its submission."""


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Request of each link to Slurm."""

    job_name: str = ""
    partition: str = ""
    """Empty: the cluster's default partition."""
    account: str = ""
    qos: str = ""
    nodes: int = 0
    limit: int = 0
    gres_per_node: Mapping[str, int] = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """Conditions that end a chain; the first that is met counts."""

    exit_code: int | None = None
    """A link that exits with this code ends the chain; ``None``: no exit code does."""
    file: str = ""
    """Path of a file whose existence ends the chain."""
    links: int = 0
    """The chain ends after this number of links; 0: no limit."""
    total_time: int = 0
    """Maximum run time of all links in seconds; 0: no limit."""
    words: str = ""
    """The conditions in words."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate in seconds: with a probability of 80% the value is between ``p10`` and ``p90``."""

    p10: int = 0
    p50: int = 0
    p90: int = 0


@dataclass(frozen=True, slots=True)
class Chain:
    """Jobs that together run longer than the time limit: settings, links and handovers."""

    id: str
    name: str
    owner: str
    status: str
    """Whether links are submitted: active, paused, done or stopped."""
    state: str = ""
    """starting, up, down, paused, done, failed or cancelled."""
    since: datetime | None = None
    """Up: start of the uninterrupted time; paused or cancelled: that time; else the end of the last link."""
    expected: datetime | None = None
    """Expected start of the pending link: Slurm's plan, or the time when Mirage releases it."""
    unready: int | None = None
    """Running link that has not reported that it is ready; ``None``: no such link, or links do not report it."""
    reason: str = ""
    """Why the chain is paused, done or stopped."""
    sentence: str = ""
    """What the last cycle did with the chain."""
    predictor: str = ""
    aim: str = ""
    steering: str = ""
    method: str = ""
    """How a pending successor is held; ``steering`` with ``auto`` resolved."""
    handover: str = ""
    max_overlap: int = 0  # seconds after which a predecessor makes way in any case; 0: no bound
    done: Done = field(default_factory=Done)
    files_unknown: str = ""
    """Why the daemon cannot check its done-file or handover file; empty: it can."""
    tasks_state: str = ""
    """Directory of the states of the tasks in its links; empty: not followed."""
    held_links: tuple[int, ...] | None = None
    """Indices of held links to release; ``None``: no held links, or the cluster is not polled yet."""
    failures: int = 0
    refusals: int = 0
    rejection: str = ""
    """Slurm's message about the last rejection of the next link; empty: no rejection."""
    not_before: datetime | None = None
    request: LinkRequest = field(default_factory=LinkRequest)
    links: tuple[Link, ...] = ()
    ended_by: int | None = None
    """Link whose end has ended the chain."""
    handovers: int = 0
    uninterrupted: int = 0  # handovers with a minute without a running link at most
    interruption: int = 0
    """Seconds without a running link, over all handovers, including a current interruption."""
    suspended: int = 0  # seconds of these for which Slurm had suspended its links
    overlap: int = 0
    """Seconds with two running links, over all handovers, including a current overlap."""
    saved: Estimate | None = None
    """Seconds of interruption avoided by early submission; ``None``: unknown."""
    appraised: int = 0  # of how many handovers that is known

    @property
    def running(self) -> Link | None:
        """The running link that ends last, without links that wait for the end of another one."""
        running = [link for link in self.links if link.state == "running"]
        running = running[:1] + [link for link in running[1:] if not link.looks]
        return max(running, key=lambda link: link.end.timestamp() if link.end else 0.0, default=None)

    @property
    def over(self) -> bool:
        """Whether no further link will be submitted."""
        return self.status in ("done", "stopped")


@dataclass(frozen=True, slots=True)
class ChainPage:
    """Page of chains in order of creation, with the state of the loop."""

    chains: tuple[Chain, ...]
    time: datetime | None = None
    sentence: str = ""
    stale_since: datetime | None = None
    """Time of the last reply of Slurm, if it does not reply now."""
    next: str | None = None
    """Cursor of the next page; ``None``: this is the last one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command."""

    id: str
    sentence: str
    chain: Chain | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal entry."""

    time: datetime | None
    kind: str
    text: str
    link: int | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons of a chain's state; entries newest first."""

    id: str
    sentence: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a chain."""

    id: str
    """Pass it to ``Client.events`` to continue after this event."""
    kind: str
    data: Any
    """Document of the event."""


@dataclass(frozen=True, slots=True)
class PastError:
    """Accuracy of past forecasts, made at real submissions."""

    forecasts: int
    of: str = ""
    """Which handovers: ``partition v100``."""
    bias: int | None = None
    """Median of real start minus predicted median, in seconds; positive: jobs start later than predicted."""
    absolute_error: int | None = None
    """Mean absolute error in seconds."""
    coverage: float | None = None
    """Share of starts between P10 and P90; ideal: 0.8."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Start time that one predictor forecasts for a job submitted now."""

    predictor: str
    role: str = ""
    """``in charge``; ``instead``: the fallback, because the one above failed; ``shadow``; ``named``."""
    start_p10: datetime | None = None
    start_p50: datetime | None = None
    start_p90: datetime | None = None
    wait_p10: int | None = None
    wait_p50: int | None = None
    wait_p90: int | None = None
    trouble: str = ""
    """Why there is no forecast; empty: there is one."""
    basis: str = ""
    """Data behind the forecast, such as ``12 waits of partition v100, any size``; empty: not stated."""
    past: PastError | None = None
    """Accuracy in the job's partition."""
    past_alike: PastError | None = None
    """Accuracy on jobs of similar size and time limit, if there are enough."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Forecasts of all predictors for one job."""

    predictions: Records[Forecast]
    now: datetime | None = None
    snapshot: datetime | None = None
    snapshot_age: int = 0
    stale_since: datetime | None = None
    planned_start: datetime | None = None
    """Slurm's planned start of such a job, if a predictor asked for it."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job of the queue, with predictions if it is pending, belongs to the caller and they were requested."""

    job_id: int
    name: str | None = None
    """``None``: unknown, or hidden from the caller."""
    user: str = ""
    account: str | None = None
    partition: str = ""
    qos: str = ""
    state: str = ""
    """PENDING, RUNNING or SUSPENDED."""
    nodes: int = 0
    limit: int | None = None
    submit: datetime | None = None
    eligible: datetime | None = None
    start: datetime | None = None
    """Start time; ``None``: pending."""
    end: datetime | None = None
    """While it runs: the end of its time limit. ``None`` while it is suspended, because that time does not
    count."""
    planned_start: datetime | None = None
    """Pending: Slurm's planned start."""
    priority: int | None = None
    waited: int | None = None
    predicted_start: datetime | None = None
    """Median; the job should not start later."""
    predicted_start_p10: datetime | None = None
    predicted_start_p90: datetime | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Page of the queue, ordered by job ID."""

    jobs: tuple[QueuedJob, ...]
    own_only: bool = False
    """Whether other users' jobs are left out: Slurm's PrivateData hides them, or is unknown."""
    total: int = 0
    snapshot: datetime | None = None
    stale_since: datetime | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Number of tasks by state."""

    total: int = 0
    done: int = 0
    """Succeeded."""
    running: int = 0
    waiting: int = 0
    failed: int = 0
    skipped: int = 0
    """Not run, because a task that they depend on has failed."""


@dataclass(frozen=True, slots=True)
class TaskPiece:
    """One attempt at a task on one device."""

    task: str
    attempt: int = 1
    share: float = 1.0
    """Share of the device."""
    state: str = ""
    """running, succeeded or failed; ended: another attempt follows."""
    start: datetime | None = None
    end: datetime | None = None
    """``None``: it is running."""


@dataclass(frozen=True, slots=True)
class TaskLane:
    """A device of a link."""

    node: str
    device: int | None = None
    """Index on the node; ``None``: the CPUs."""
    kind: str = ""
    link: int | None = None
    pieces: tuple[TaskPiece, ...] = ()
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """States of the tasks in a chain's links, as last written by the agent."""

    chain: str
    name: str = ""
    problem: str = ""
    """Why the states are unknown; empty: they are known."""
    written: datetime | None = None
    stale: bool = False
    """Whether a link runs, but no state was written for minutes."""
    over: bool = False
    counts: TaskCounts | None = None
    lanes: tuple[TaskLane, ...] = ()
    """Devices of the running links, else of the last link."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay started through the API."""

    id: str
    state: str
    by: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    problem: str = ""
    """Why it failed."""
    done: int = 0
    """Number of finished episodes."""
    total: int | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    """Document of ``mirage replay --json``, if a single replay was requested and is done."""
