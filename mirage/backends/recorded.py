"""A cluster as it was: kept snapshots shown again, for a shadow replay in which acts are only noted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import MirageError, UnknownJob
from mirage.domain.job import Job, JobId, JobState
from mirage.domain.link import NO_IDENTITIES
from mirage.domain.snapshot import JobColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.domain.job import JobChange, JobRequest, Seconds, SignalReach
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import Snapshot

_NO_JOBS = JobColumns.none()


class NothingRecorded(MirageError):
    """The recording holds no snapshot."""


@dataclass(frozen=True, slots=True)
class Noted:
    """An action that would have been applied to the cluster."""

    time: Seconds
    act: str
    """``submit``, ``cancel``, ``update`` or ``signal``."""
    job_id: JobId
    """Below 0 for jobs that were only noted."""
    request: JobRequest | None = None
    """The request that would have been submitted."""
    change: JobChange | None = None
    signal: str = ""


class RecordedCluster:
    """Snapshots in order of time as ``Cluster``, ``Actuator`` and ``Clock``.

    A noted submission appears among the links as a pending job, because its real start is unknown; what was
    recorded under the same tag counts more. The columns are as recorded.
    """

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        """Read ``snapshots`` one by one as they are shown. Raises ``NothingRecorded`` for an empty iterable."""
        self._coming = iter(snapshots)
        first = next(self._coming, None)
        if first is None:
            raise NothingRecorded("no snapshot of this time is stored; nothing can be replayed")
        self._current = first
        self._own: dict[str, Job] = {}
        self._noted: list[Noted] = []

    @property
    def noted(self) -> tuple[Noted, ...]:
        """The noted actions so far, in order."""
        return tuple(self._noted)

    def advance(self) -> bool:
        """Show the next snapshot; ``False`` after the last one.

        Raises ``ValueError`` for one that is older than that before.
        """
        following = next(self._coming, None)
        if following is None:
            return False
        if following.time < self._current.time:
            raise ValueError(
                f"snapshot of {following.time} after that of {self._current.time}: not in order of time"
            )
        self._current = following
        return True

    def now(self) -> Seconds:
        """When the snapshot that is shown was taken."""
        return self._current.time

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The cluster as it was, with the noted submissions among the links."""
        del expected, identities  # links were identified as they were recorded; nothing is looked up
        current = replace(self._current, links={**self._own, **self._current.links})
        return current if queue else replace(current, pending=_NO_JOBS, running=_NO_JOBS, partitions=())

    def submit(self, request: JobRequest) -> JobId:
        """Note a submission; its id is below 0."""
        job_id = JobId(-1 - len(self._noted))
        self._note("submit", job_id, request=request)
        self._own[request.tag or f"noted:{job_id}"] = _pending(request, job_id, self.now())
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Note a cancellation. Raises ``UnknownJob``."""
        del owner
        tag, job = self._known(job_id)
        if job.state.finished:
            return
        self._note("cancel", job_id)
        if tag in self._own:
            self._own[tag] = replace(job, state=JobState.CANCELLED, end=self.now())

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Note a change of a pending job. Raises ``UnknownJob``."""
        del owner
        tag, job = self._known(job_id)
        if job.state is not JobState.PENDING:
            raise UnknownJob(f"job {job_id} does not pend: it is {job.state.name}")
        self._note("update", job_id, change=change)
        if tag in self._own:
            held = job.held if change.held is None else change.held
            self._own[tag] = replace(job, held=held, nice=job.nice if change.nice is None else change.nice)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Note a signal to a running job. Raises ``UnknownJob``."""
        del owner, reach
        _, job = self._known(job_id)
        if job.state is not JobState.RUNNING:
            raise UnknownJob(f"job {job_id} does not run: it is {job.state.name}")
        self._note("signal", job_id, signal=signal)

    def _known(self, job_id: JobId) -> tuple[str, Job]:
        for links in (self._own, self._current.links):
            for tag, job in links.items():
                if job.job_id == job_id:
                    return tag, job
        raise UnknownJob(f"job {job_id} is neither recorded nor noted at {self.now()}")

    def _note(
        self,
        act: str,
        job_id: JobId,
        *,
        request: JobRequest | None = None,
        change: JobChange | None = None,
        signal: str = "",
    ) -> None:
        self._noted.append(Noted(self.now(), act, job_id, request, change, signal))


def _pending(request: JobRequest, job_id: JobId, now: Seconds) -> Job:
    return Job(
        job_id=job_id,
        name=request.name,
        user=request.user,
        partition=request.partition,
        nodes=request.nodes,
        limit=request.limit,
        state=JobState.PENDING,
        submit=now,
        tag=request.tag,
        held=request.held,
        nice=request.nice,
    )


class RecordedTicks:
    """``Ticks`` at the times at which snapshots were taken: between them nothing is known."""

    def __init__(self, cluster: RecordedCluster) -> None:
        self._cluster = cluster

    def wait(self, wake: Seconds, deciding: bool) -> bool:
        """Show the next snapshot, whenever it was taken."""
        del wake, deciding
        return self._cluster.advance()
