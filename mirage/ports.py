"""Every port of Mirage on one page. Adapters implement these; the core knows nothing else of the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.link import NO_IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from mirage.domain.chain import ChainRecord
    from mirage.domain.command import PendingCommand
    from mirage.domain.decision import Observation, Prediction, RecentWaits, Standing, Wants
    from mirage.domain.files import FileState, WatchedFile
    from mirage.domain.inference import Dispatch, SystemView
    from mirage.domain.job import Job, JobChange, JobId, JobRequest, Seconds, SignalReach
    from mirage.domain.jobtable import JobTable
    from mirage.domain.journal import Entry
    from mirage.domain.lease import Lease
    from mirage.domain.link import LinkIdentity
    from mirage.domain.pool import Placement, PoolView, TaskTable
    from mirage.domain.snapshot import Snapshot
    from mirage.domain.tags import PastLinks


class Cluster(Protocol):
    """A Slurm cluster: real, simulated or recorded."""

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The queue and the nodes now, with at most three queries, whatever the number of jobs. A few more follow
        where accounting rejects one, and one where it knows several jobs with the ID of a link.

        Without ``queue`` only our own links need be looked up: the columns of jobs and the partitions may then
        be empty, which spares replays their time; a live daemon fills them from its last whole snapshot.
        ``expected`` are the links that must be accounted for, by tag (``NO_JOB`` where the id is not known): those
        that the queue does not show any more are looked up among the jobs that have ended. ``identities``, also by
        tag: a job with the ID of an expected link that is not the link's (``is_link``) is not shown as it, neither
        from the queue nor from accounting.
        Raises ``ClusterUnavailable`` when the controller does not answer or its answer is not whole; an
        unreachable controller is never an empty queue.
        """


class Actuator(Protocol):
    """Acts on jobs in the name of their owner.

    Every method may raise ``ClusterUnavailable``: whether the act happened is then unknown, and the next snapshot
    shows. ``NotPermitted``: this actuator cannot act for ``owner``.
    """

    def submit(self, request: JobRequest) -> JobId:
        """Submit a job for ``request.user``; returns its id. Raises ``SubmissionRejected`` with Slurm's reason.

        The tag of the request is visible in every later snapshot, so that a submission whose answer was lost
        is found again.
        """

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a pending or running job; nothing happens if it has ended. Raises ``UnknownJob``."""

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a pending job. Raises ``UnknownJob``, also for one that pends no longer."""

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Send a running job a signal such as ``USR1``, to those of its processes that ``reach`` names.

        Raises ``UnknownJob``, also for one that runs no longer.
        """


class StartEstimator(Protocol):
    """Slurm's own answer to "when would this job start" (``sbatch --test-only``)."""

    def estimate_start(self, request: JobRequest) -> Seconds:
        """The planned start if submitted now, ``ABSENT`` where Slurm plans none within its backfill window.

        May raise ``ClusterUnavailable``, ``NotPermitted`` and ``SubmissionRejected``.
        """


class NodeSharing(Protocol):
    """Whether the nodes of a running job are taken from other jobs until it is over."""

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """Why a second such job may run on them, or the job leave them before it is over; empty: neither.

        ``spreads``: the second one may have further nodes.

        Raises ``ClusterUnavailable`` if Slurm does not answer.
        """


class WaitHistory(Protocol):
    """Waits of jobs that have started."""

    def recent_waits(self, count: int, partition: str, gres: str, qos: str) -> RecentWaits:
        """The last ``count`` jobs of a partition started until now, oldest first; fewer where fewer are known.

        Slurm's list of partitions (``a,b``): of any of them. Empty: of the cluster's default partition where that
        is known, else of all. Where both ``gres`` (as ``gres_class`` writes it) and ``qos`` are given, some older
        jobs of just these may come before.
        """


class JobHistory(Protocol):
    """Jobs of all users, from accounting or a trace."""

    def jobs(self, span: Seconds) -> JobTable:
        """The jobs submitted within the last ``span`` seconds, in order of submission, as known now.

        Of a job that runs the end is ``ABSENT``, of one that pends the start as well. May lag by an hour.
        """


class LinkAccounting(Protocol):
    """Jobs that have left the queue, found by their comments."""

    def keeps_comments(self) -> bool | None:
        """Whether comments of jobs are kept; ``None``: not known. Raises ``ClusterUnavailable``."""

    def past_links(self, start: Seconds, end: Seconds, ids: Collection[JobId]) -> PastLinks | None:
        """Those in the queue at any time in [start, end), and the jobs ``ids``; ``None``: there is no accounting.

        One query. Raises ``ClusterUnavailable`` where it is not answered.
        """


class OwnerLimitSource(Protocol):
    """Grants of the controller to users: fair share, limits and reservations."""

    def standing(self, request: JobRequest) -> Standing:
        """That of ``request.user`` for such a job; may be as old as an hour."""

    def default_partition(self) -> str:
        """The partition of jobs that name none; empty: not known, or Slurm has no default."""


class Clock(Protocol):
    """The only source of time, so that replays can run faster."""

    def now(self) -> Seconds:
        """Seconds since the Unix epoch, UTC (or the trace's own zero in a replay)."""


class Ticks(Protocol):
    """When the loop runs its next cycle: wall clock, simulated or recorded."""

    def wait(self, wake: Seconds, deciding: bool) -> bool:
        """Return at the next cycle's time; ``False`` if no cycle follows.

        At the latest at ``wake``, a time at which the loop knows that something is due. ``deciding`` is
        false while no chain waits for a decision: nothing happens then before a link of ours changes, and the
        wait may last until it does.
        """


class Predictor(Protocol):
    """Answers an observation with a prediction. May be called for several chains in one cycle."""

    @property
    def name(self) -> str:
        """Name as the user writes it, such as ``fixed:6h``."""

    @property
    def wants(self) -> Wants:
        """Inputs that an observation must have."""

    def predict(self, observation: Observation) -> Prediction:
        """When would the successor start if submitted now, or how good is each action.

        Any exception is the loop's to handle: the reactive baseline then answers.
        """


class CommandSource(Protocol):
    """Commands of users about their chains."""

    def take(self) -> tuple[PendingCommand, ...]:
        """Commands that a cycle applies before it decides, in this order; each must be answered."""

    def take_more(self) -> tuple[PendingCommand, ...]:
        """Commands that it applies after that: many commands of one user delay no decision about other chains."""


class ChainStore(Protocol):
    """Keeps chains across restarts. Dumb: no policy."""

    def load(self) -> tuple[ChainRecord, ...]:
        """Every chain, in order of creation. The scripts may be left out (``StoredScript``)."""

    def with_script(self, request: JobRequest) -> JobRequest:
        """The request of a chain, or of a link, with its script: to be submitted, and not to be kept."""

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Add or replace the record of one chain, and append the entries about the change to the journal.

        Both are durable when it returns, or neither is.
        """


class Leases(Protocol):
    """Record of the daemon that leads. Without policy: ``control/leader_election.py`` has the rules."""

    def read(self) -> Lease:
        """The lease now. Raises ``StoreUnavailable``."""

    def swap(self, old: Lease, new: Lease) -> bool:
        """Replace ``old`` by ``new`` atomically; ``False``: another value is stored, and stays.

        Durable when it returns. Raises ``StoreUnavailable``: ``new`` may be there or not.
        """


class Journal(Protocol):
    """Entries that accompany no change of a record."""

    def write(self, entry: Entry) -> None:
        """Append one entry to the journal."""


class Files(Protocol):
    """Whether the files by which jobs speak to Mirage have appeared: done, ready to take over.

    Users name them, on file systems that may hang: no method touches a file system in the caller's thread.
    """

    def refresh(self, wanted: Collection[WatchedFile], anew: Collection[WatchedFile] = ()) -> None:
        """Start to check these files and forget all others; waits a fraction of a second for results at most.

        ``anew``: those of which no check counts that began before now.
        """

    def state(self, file: WatchedFile) -> FileState:
        """Result of the last check. A file that cannot be checked is unknown, never absent."""


class Ordering(Protocol):
    """Ordering policy: which tasks start first inside an allocation."""

    @property
    def name(self) -> str:
        """Name as the user writes it, such as ``sjf``."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """One number for each of ``view.pending``: the smallest is the first. Ties go by order of submission.

        With preemption the running tasks that can be preempted are among ``view.pending``.
        """

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64] | None:
        """The scores of all tasks where they are the same at every time before a task starts; else None.

        Where they are, a simulation without preemption runs wholly in compiled code.
        """


class Placer(Protocol):
    """Placement policy: which devices a task runs on inside an allocation."""

    @property
    def name(self) -> str:
        """Name as the user writes it, such as ``best-fit``."""

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        """Places for as many of the tasks ``order`` (rows, first come first) as fit into what is free.

        Each placement counts as taken for those after it. ``strict``: stop at the first that does not fit;
        otherwise later ones may pass it.
        """


class RequestPolicy(Protocol):
    """Decides which request's next segment runs on which device of a system."""

    @property
    def name(self) -> str:
        """Name as the user writes it, such as ``edf``."""

    @property
    def period(self) -> float:
        """Seconds between two decisions at most; 0 for one that decides at each arrival and each end alone."""

    def begin(self) -> None:
        """Reset the state: another system follows, or the same from its beginning."""

    def decide(self, view: SystemView) -> Dispatch:
        """The starts for now. Called when a request arrives, when a segment ends, and when the period is over.

        Units that stay free and requests that stay ready are asked about again at the next of these times.
        """
