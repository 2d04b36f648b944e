"""What the daemon tells, as dataclasses.

Times are aware ``datetime``s, durations seconds, ``None`` is not known.
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
    """From 1."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_id: int | None = None
    job_state: str = ""
    """Slurm's."""
    submit: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    """Running: when its limit ends it."""
    exit_code: int | None = None
    looks: bool = False  # its script waits for the end of the link before it
    reason: str = ""
    """The sentence that decided its submission."""


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What each link asks of Slurm."""

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
    """When a chain has done its work; whichever holds first."""

    exit_code: int | None = None
    """A link that completes with this code ends the chain; ``None``: none does."""
    file: str = ""
    """The chain is done when this file exists."""
    links: int = 0
    """The chain is done once this number of links have run; 0: no such bound."""
    total_time: int = 0
    """Seconds that all links together have run; 0: no such bound."""
    words: str = ""
    """The same in words."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate in seconds: four times in five it lies between ``p10`` and ``p90``."""

    p10: int = 0
    p50: int = 0
    p90: int = 0


@dataclass(frozen=True, slots=True)
class Chain:
    """A service longer than the walltime limit: its links, and how they handed over."""

    id: str
    name: str
    owner: str
    status: str
    """Whether links are submitted: active, paused, done or stopped."""
    state: str = ""
    """starting, up, down, paused, done, failed or cancelled."""
    since: datetime | None = None
    """Up: since when without interruption; paused or cancelled: when that was; else when the last link ended."""
    expected: datetime | None = None
    """When the link that waits in the queue may start: Slurm's plan, or when Mirage lets it go."""
    unready: int | None = None
    """The running link that has not said that it is ready; ``None``: none, or links of it do not say so."""
    reason: str = ""
    """Why it is paused, done or stopped."""
    sentence: str = ""
    """What the last cycle did about it."""
    predictor: str = ""
    aim: str = ""
    steering: str = ""
    method: str = ""
    """How a successor in the queue is held; ``steering`` with ``auto`` resolved."""
    handover: str = ""
    max_overlap: int = 0  # seconds after which a predecessor makes way in any case; 0: no bound
    done: Done = field(default_factory=Done)
    files_unknown: str = ""
    """Why its done-file or handover file cannot be checked; empty: they can."""
    tasks_state: str = ""
    """Directory in which its links keep how their tasks stand; empty: nobody is to look."""
    held_links: tuple[int, ...] | None = None
    """Indices of held links, to be released; ``None``: it has none, or the cluster is not polled yet."""
    failures: int = 0
    refusals: int = 0
    rejection: str = ""
    """Slurm's words of its last rejection of the next link; empty: it rejects none now."""
    not_before: datetime | None = None
    request: LinkRequest = field(default_factory=LinkRequest)
    links: tuple[Link, ...] = ()
    ended_by: int | None = None
    """The link whose end has ended the chain."""
    handovers: int = 0
    uninterrupted: int = 0  # handovers with a minute without a running link at most
    interruption: int = 0
    """Seconds without a running link, over all handovers; an interruption that lasts counts until now."""
    suspended: int = 0  # seconds of these for which Slurm had suspended its links
    overlap: int = 0
    """Seconds with two running links, over all handovers, one that continues included."""
    saved: Estimate | None = None
    """Seconds without a running link that early submissions spared; ``None``: of no handover that is known."""
    appraised: int = 0  # of how many handovers that is known

    @property
    def running(self) -> Link | None:
        """The running link that ends last, of those that do not wait for the end of another."""
        running = [link for link in self.links if link.state == "running"]
        running = running[:1] + [link for link in running[1:] if not link.looks]
        return max(running, key=lambda link: link.end.timestamp() if link.end else 0.0, default=None)

    @property
    def over(self) -> bool:
        """Whether no further link will ever be submitted."""
        return self.status in ("done", "stopped")


@dataclass(frozen=True, slots=True)
class ChainPage:
    """Some chains in order of creation, and the state of the loop that keeps them."""

    chains: tuple[Chain, ...]
    time: datetime | None = None
    sentence: str = ""
    stale_since: datetime | None = None
    """When the cluster last answered, where it does not answer now."""
    next: str | None = None
    """Where the next page begins; ``None``: this is the last."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command."""

    id: str
    sentence: str
    chain: Chain | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal."""

    time: datetime | None
    kind: str
    text: str
    link: int | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a chain is as it is; entries newest first."""

    id: str
    sentence: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has just happened."""

    id: str
    """``Client.events`` continues after it."""
    kind: str
    data: Any
    """The document that came with it."""


@dataclass(frozen=True, slots=True)
class PastError:
    """How forecasts held that were made when links were really submitted."""

    forecasts: int
    of: str = ""
    """At which handovers: ``partition v100``."""
    bias: int | None = None
    """Median of start less predicted median, seconds: above 0, jobs start later than predicted."""
    absolute_error: int | None = None
    """Mean, seconds."""
    coverage: float | None = None
    """Share of starts within P10 to P90; 0.8 is right."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When one predictor predicts that a job would start if it were submitted now."""

    predictor: str
    role: str = ""
    """``in charge``; ``instead``: a fallback that answered, as the one above failed; ``shadow``; ``named``."""
    start_p10: datetime | None = None
    start_p50: datetime | None = None
    start_p90: datetime | None = None
    wait_p10: int | None = None
    wait_p50: int | None = None
    wait_p90: int | None = None
    trouble: str = ""
    """Why it predicts nothing; empty: it does."""
    basis: str = ""
    """What it rests on, such as ``12 waits of partition v100, any size``; empty: it does not say."""
    past: PastError | None = None
    """In the job's partition."""
    past_alike: PastError | None = None
    """On jobs of about this size and limit as well, where there are enough."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """One job, all predictors."""

    predictions: Records[Forecast]
    now: datetime | None = None
    snapshot: datetime | None = None
    snapshot_age: int = 0
    stale_since: datetime | None = None
    planned_start: datetime | None = None
    """Slurm's own plan for such a job, where a predictor asked for it."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job of the queue; what is predicted of it where it is one's own, pending, and was asked for."""

    job_id: int
    name: str | None = None
    """``None``: not known, or not for the caller to see."""
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
    """When it started; ``None``: it is pending."""
    end: datetime | None = None
    """Running: when its limit ends it. ``None`` while it is suspended: that time does not count."""
    planned_start: datetime | None = None
    """Pending: Slurm's own plan."""
    priority: int | None = None
    waited: int | None = None
    predicted_start: datetime | None = None
    """Median; the job should start no later."""
    predicted_start_p10: datetime | None = None
    predicted_start_p90: datetime | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Some jobs of the queue, in order of their numbers."""

    jobs: tuple[QueuedJob, ...]
    own_only: bool = False
    """Whether the jobs of others are left out: Slurm's PrivateData hides them from users, or is not known."""
    total: int = 0
    snapshot: datetime | None = None
    stale_since: datetime | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks are how far."""

    total: int = 0
    done: int = 0
    """Succeeded."""
    running: int = 0
    waiting: int = 0
    failed: int = 0
    skipped: int = 0
    """Not run, because a task that they wait for has failed."""


@dataclass(frozen=True, slots=True)
class TaskPiece:
    """One attempt at a task on one accelerator."""

    task: str
    attempt: int = 1
    share: float = 1.0
    """Of the accelerator."""
    state: str = ""
    """running, succeeded, failed; ended: another attempt has followed or will."""
    start: datetime | None = None
    end: datetime | None = None
    """``None``: it runs."""


@dataclass(frozen=True, slots=True)
class TaskLane:
    """An accelerator of a link."""

    node: str
    device: int | None = None
    """Its number there; ``None``: the CPUs."""
    kind: str = ""
    link: int | None = None
    pieces: tuple[TaskPiece, ...] = ()
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """How the tasks within a chain's links stand, as the agent there last wrote."""

    chain: str
    name: str = ""
    problem: str = ""
    """Why nothing is known; empty: something is."""
    written: datetime | None = None
    stale: bool = False
    """Whether a link runs and nothing has been written for minutes."""
    over: bool = False
    counts: TaskCounts | None = None
    lanes: tuple[TaskLane, ...] = ()
    """Of the links that run, else of the last one."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that somebody asked the daemon for."""

    id: str
    state: str
    by: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    problem: str = ""
    """Why it failed."""
    done: int = 0
    """Episodes played."""
    total: int | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    """As ``mirage replay --json`` writes it, where one run is asked for that is done."""
