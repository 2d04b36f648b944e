"""A simulated cluster in real time: each query first advances it to the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.linkidentity import NO_IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.backends.simulated import SimulatedCluster
    from mirage.domain.decision import Standing
    from mirage.domain.job import Job, JobChange, JobId, JobRequest, Seconds, SignalReach
    from mirage.domain.jobtable import JobTable
    from mirage.domain.linkidentity import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Clock


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
