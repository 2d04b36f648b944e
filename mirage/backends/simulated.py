"""The simulated cluster behind the ports: at the clock of one simulation, or in real time.

In real time each query first advances the simulation to the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.decision import RecentWaits
from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import JobId, JobState
from mirage.domain.jobtable import JobLabels
from mirage.domain.link import NO_IDENTITIES
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.simulator.controller_state import RECENT_WAITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from mirage.domain.decision import Standing
    from mirage.domain.job import Job, JobChange, JobRequest, Seconds, SignalReach
    from mirage.domain.jobtable import JobTable
    from mirage.domain.link import LinkIdentity
    from mirage.ports import Clock
    from mirage.simulator.simulation import Simulation


@dataclass(frozen=True, slots=True)
class SimulatedExecution:
    """Behaviour of a job once it runs, which the request does not contain."""

    runtime: Seconds
    outcome: JobState = JobState.COMPLETED
    exit_code: int = 0


Script = Callable[["JobRequest"], SimulatedExecution]
"""Says what each submitted job will do."""


def _waits(found: NDArray[np.void], partition: str) -> RecentWaits:
    return RecentWaits(found["start"], found["wait"], found["nodes"], found["limit"], partition)


def to_the_limit(request: JobRequest) -> SimulatedExecution:
    """A service: runs until its limit ends it."""
    return SimulatedExecution(request.limit, JobState.TIMEOUT)


_NO_JOBS = JobColumns.none()


class SimulatedCluster:
    """One simulation behind every port that faces Slurm, and as its ``Clock`` and ``SteppedTime``."""

    def __init__(self, simulation: Simulation, script: Script = to_the_limit) -> None:
        self.simulation = simulation
        self._script = script
        self._own: dict[str, JobId] = {}
        self._whole: set[JobId] = set()

    def copy(self) -> SimulatedCluster:
        """An independent cluster in the same state."""
        twin = SimulatedCluster(self.simulation.copy(results=True), self._script)
        twin._own, twin._whole = dict(self._own), set(self._whole)
        return twin

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The queue and the nodes now; links are the jobs submitted through this object."""
        del expected, identities  # a simulation never forgets a job, and gives no ID twice
        simulation = self.simulation
        links = {tag: simulation.job(job_id) for tag, job_id in self._own.items()}
        if not queue:
            return Snapshot(simulation.now, _NO_JOBS, _NO_JOBS, (), (), (), (), links)
        pending, running = simulation.columns()
        return Snapshot(
            time=simulation.now,
            pending=pending,
            running=running,
            partitions=simulation.partitions(),
            users=simulation.users,
            partition_names=simulation.partition_names,
            qos_names=simulation.qos_names,
            links=links,
            labels=JobLabels.none() if simulation.whole_nodes else simulation.labels(),
        )

    def submit(self, request: JobRequest) -> JobId:
        """Submit a job that does what the script says. Raises ``SubmissionRejected``."""
        run = self._script(request)
        job_id = self.simulation.submit(request, run.runtime, run.outcome, run.exit_code)
        if request.tag:
            self._own[request.tag] = job_id
        if request.exclusive:
            self._whole.add(job_id)
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job. Raises ``UnknownJob``."""
        del owner
        self.simulation.cancel(job_id)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a pending job. Raises ``UnknownJob``; ``SubmissionRejected`` for nodes that it cannot have.

        Its dependencies are those of its submission: changing them raises ``SubmissionRejected``, too.
        """
        del owner
        if change.dependencies is not None:
            raise SubmissionRejected("InvalidDependency", f"simulated job {job_id} keeps its dependencies")
        if self.simulation.job(job_id).state is not JobState.PENDING:
            raise UnknownJob(f"job {job_id} is no longer pending")
        if change.held is not None:
            (self.simulation.hold if change.held else self.simulation.release)(job_id)
        if change.nice is not None:
            self.simulation.set_nice(job_id, change.nice)
        if change.begin is not None:
            self.simulation.set_begin(job_id, change.begin)
        if change.node_list is not None:
            self.simulation.set_node_list(job_id, change.node_list)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Do nothing: the job's script object decides how it runs. Raises ``UnknownJob``."""
        del owner, signal, reach
        if self.simulation.job(job_id).state is not JobState.RUNNING:
            raise UnknownJob(f"job {job_id} is no longer running")

    def estimate_start(self, request: JobRequest) -> Seconds:
        """The start in the backfill plan of this time."""
        return self.simulation.estimate_start(request)

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """Simulated links that do not ask for whole nodes count as sharing them."""
        del spreads
        whole = {p.name for p in self.simulation.cluster.partitions if p.exclusive}
        if job.partition in whole or job.job_id in self._whole:
            return ""
        return "its links do not ask for whole nodes (--exclusive)"

    def start_times(self, request: JobRequest, submit_times: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the job would start if submitted at each of these times: knowledge that no real cluster has."""
        return self.simulation.start_times(request, self._script(request).runtime, submit_times)

    def recent_waits(self, count: int, partition: str, gres: str = "", qos: str = "") -> RecentWaits:
        """The last ``count`` jobs of the partition among those that the simulation started last, of all users.

        Their accounts, QOS and GRES are missing, so replays distinguish classes by size and limit alone.
        """
        del gres, qos
        simulation = self.simulation
        names = simulation.partition_names
        if len(names) == 1:
            return _waits(simulation.waits(count), names[0])
        partition = partition or simulation.default_partition
        if not partition:
            return _waits(simulation.waits(count), partition)
        found = simulation.waits(RECENT_WAITS)
        wanted = [names.index(name) for name in partition.split(",") if name in names]
        return _waits(found[np.isin(found["partition"], wanted)][-count:], partition)

    def jobs(self, span: Seconds) -> JobTable:
        """The trace's jobs of the last ``span`` seconds, without those submitted through this object."""
        return self.simulation.known_jobs(self.simulation.now - span)

    def standing(self, request: JobRequest) -> Standing:
        """Fair share, limits and reservations that the simulated controller grants the request's user."""
        return self.simulation.standing(request)

    def default_partition(self) -> str:
        """The default partition of the simulated cluster."""
        return self.simulation.default_partition

    def now(self) -> Seconds:
        """The simulated clock, in seconds."""
        return self.simulation.now

    def advance(self, until: Seconds) -> None:
        """Let everything happen that is due until then."""
        self.simulation.run_until(until)

    def link_states(self) -> tuple[int, ...]:
        """The states of the jobs submitted through this object."""
        return tuple(self.simulation.job(job_id).state for job_id in self._own.values())


class PacedCluster:
    """One simulation behind the ports that face Slurm, on a clock that runs by itself.

    Where the clock is set back the simulation waits for it.
    """

    def __init__(self, cluster: SimulatedCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Advance to the clock and return the state of the simulation, with the labels of its jobs."""
        cluster = self._present()
        seen = cluster.snapshot(queue=queue, expected=expected, identities=identities)
        return replace(seen, labels=cluster.simulation.labels()) if queue else seen

    def submit(self, request: JobRequest) -> JobId:
        """Submit a job. Raises ``SubmissionRejected``."""
        return self._present().submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job. Raises ``UnknownJob``."""
        self._present().cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a pending job. Raises ``UnknownJob``."""
        self._present().update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Do nothing: a simulated job ignores signals. Raises ``UnknownJob``."""
        self._present().signal(job_id, owner, signal, reach=reach)

    def estimate_start(self, request: JobRequest) -> Seconds:
        """The start in the backfill plan of this time."""
        return self._present().estimate_start(request)

    def jobs(self, span: Seconds) -> JobTable:
        """The background's jobs of the last ``span`` seconds."""
        return self._present().jobs(span)

    def standing(self, request: JobRequest) -> Standing:
        """Fair share, limits and reservations that the simulated controller grants the request's user."""
        return self._present().standing(request)

    def default_partition(self) -> str:
        """The default partition of the simulated cluster."""
        return self._cluster.default_partition()

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """Whether simulated links share nodes."""
        return self._present().why_shared(job, spreads=spreads)

    def _present(self) -> SimulatedCluster:
        self._cluster.advance(max(self._clock.now(), self._cluster.now()))
        return self._cluster
