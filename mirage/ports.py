"""Every port of Mirage on one page. Adapters implement these; the core knows nothing else of the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Observation, Prediction, RecentWaits
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.snapshot import Snapshot


class Cluster(Protocol):
    """A Slurm cluster: real, simulated or recorded.

    Every method may raise ``ClusterUnavailable`` when the controller does not answer; the caller then holds.
    """

    def snapshot(self, *, queue: bool = True) -> Snapshot:
        """The queue and the nodes now. One bulk question, whatever the number of jobs.

        Without ``queue`` only our own links need be looked up: the columns of jobs and the partitions may then
        be empty.
        """

    def submit(self, request: JobRequest) -> JobId:
        """Submit a job; returns its id. Raises ``SubmissionRejected`` with Slurm's reason.

        The tag of the request is visible in every later snapshot, so that a submission whose answer was lost
        is found again.
        """

    def cancel(self, job_id: JobId) -> None:
        """Cancel a pending or running job; nothing happens if it has ended. Raises ``UnknownJob``."""


class StartEstimator(Protocol):
    """Slurm's own answer to "when would this job start" (``sbatch --test-only``)."""

    def estimate_start(self, request: JobRequest) -> Seconds:
        """The planned start if submitted now, ``ABSENT`` where Slurm gives none.

        May raise ``ClusterUnavailable`` and ``SubmissionRejected``.
        """


class WaitHistory(Protocol):
    """What is known of the waits of jobs that have started."""

    def recent_waits(self, count: int) -> RecentWaits:
        """The last ``count`` jobs started until now, oldest first; fewer where fewer are known."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> Seconds:
        """Seconds since the Unix epoch, UTC (or the trace's own zero in a replay)."""


class Ticks(Protocol):
    """When the loop runs its next cycle: wall clock, simulated or recorded."""

    def wait(self, wake: Seconds, deciding: bool) -> bool:
        """Return at the next cycle's instant; ``False`` when there is none any more.

        At the latest at ``wake``, an instant at which the loop knows that something is due. ``deciding`` is
        false while no chain waits for a decision: nothing happens then before a link of ours changes, and the
        wait may last until it does.
        """


class Predictor(Protocol):
    """Answers an observation with a prediction. May be called for several chains in one cycle.

    The attributes say what an observation must bring, because some of it costs a question to the cluster.
    """

    @property
    def name(self) -> str:
        """As the user names it, such as ``fixed:6h``."""

    @property
    def wants_waits(self) -> int:
        """How many recent waits it reads; 0: none."""

    @property
    def wants_queue(self) -> bool:
        """Whether it reads the snapshot's jobs and partitions; our own links are always there."""

    @property
    def wants_plan(self) -> bool:
        """Whether it reads Slurm's own estimate."""

    def predict(self, observation: Observation) -> Prediction:
        """When would the successor start if submitted now, or how good is each action.

        Any exception is the loop's to handle: the reactive baseline then answers.
        """


class ChainStore(Protocol):
    """Keeps chains across restarts. Dumb: no policy."""

    def load(self) -> tuple[ChainRecord, ...]:
        """Every chain, in order of creation."""

    def save(self, record: ChainRecord) -> None:
        """Add or replace the record of one chain; durable when it returns."""


class Journal(Protocol):
    """Where the sentences go."""

    def write(self, entry: Entry) -> None:
        """Append one entry."""


class DoneFiles(Protocol):
    """Whether the files that end chains have appeared."""

    def exists(self, path: str) -> bool:
        """Whether ``path`` exists now; ``False`` also where it cannot be looked at."""
