"""Every port of Mirage on one page. Adapters implement these; the core knows nothing else of the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.snapshot import Snapshot


class Cluster(Protocol):
    """A Slurm cluster: real, simulated or recorded.

    Every method may raise ``ClusterUnavailable`` when the controller does not answer; the caller then holds.
    """

    def snapshot(self) -> Snapshot:
        """The queue and the nodes now. One bulk question, whatever the number of jobs."""

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
        """The planned start if submitted now, ``ABSENT`` where Slurm gives none."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> Seconds:
        """Seconds since the Unix epoch, UTC (or the trace's own zero in a replay)."""
