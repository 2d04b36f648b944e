"""Links that wait, held, until they are wanted: submitted by their owner in advance, let go by an Operator.

The owner submits jobs with the tags of the links to come and Slurm's ``--hold``. They are the **stock**. Asked to
submit a link, Mirage releases the job of its tag; nobody acts in another's name. The account needs Slurm's
AdminLevel Operator, with which it may also cancel, signal, hold and reprioritise anybody's jobs: so nothing is
touched here but links of the owner asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import NO_JOB, NOTHING_EXPECTED
from mirage.domain.errors import NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.job import JobChange, JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import ChainId
    from mirage.domain.job import Job, JobId, JobRequest
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator, Cluster

_HELD_BY_ADMIN = "JobHeldAdmin"


@dataclass(frozen=True, slots=True)
class _Seen:
    """Our jobs in the last snapshot, by tag."""

    links: Mapping[str, Job] = field(default_factory=dict)
    stock: Mapping[str, Job] = field(default_factory=dict)

    def holds(self, job_id: JobId, owner: str) -> bool:
        """Whether the job is a link, or stock, of ``owner``."""
        jobs = (*self.links.values(), *self.stock.values())
        return any(job.job_id == job_id and job.user == owner for job in jobs)


class ReleaseCluster:
    """``Cluster`` and ``Actuator`` over stock: for the loop a job exists from the moment it is asked for."""

    def __init__(self, cluster: Cluster, operator: Actuator) -> None:
        self._cluster = cluster
        self._operator = operator
        self._seen = _Seen()

    def snapshot(self, *, queue: bool = True, expected: Mapping[str, JobId] = NOTHING_EXPECTED) -> Snapshot:
        """The cluster's snapshot, its links without the stock.

        A held job is stock unless the loop knows it as a link by its id: then its owner, or the steering, holds
        it back, and it is shown. So a release whose answer was lost shows as a link once the job is no longer
        held, and is asked for again where it never happened. The one case that looks the same: a job that was
        released and held again by its owner before any snapshot showed it free, while its id was not stored; it
        is released a second time.
        """
        snapshot = self._cluster.snapshot(queue=queue, expected=expected)
        stock = {tag: job for tag, job in snapshot.links.items() if _is_stock(job, expected.get(tag, NO_JOB))}
        links = {tag: job for tag, job in snapshot.links.items() if tag not in stock}
        self._seen = _Seen(links, stock)
        return replace(snapshot, links=links)

    def stock(self, chain_id: ChainId, owner: str) -> tuple[Job, ...]:
        """The jobs of this chain that wait to be asked for, as the last snapshot showed them."""
        prefix = f"mirage:{chain_id}:"
        return tuple(job for tag, job in self._seen.stock.items() if tag.startswith(prefix) and job.user == owner)

    def submit(self, request: JobRequest) -> JobId:
        """Let the held job of this tag go; returns its id.

        Raises ``SubmissionRejected`` where its owner has left none, or an administrator holds it.
        """
        job = self._seen.stock.get(request.tag)
        if job is None or job.user != request.user:
            raise _none_left(request)
        if job.reason == _HELD_BY_ADMIN:
            raise SubmissionRejected(_HELD_BY_ADMIN, f"an administrator holds job {job.job_id} ({request.tag})")
        try:
            self._let_go(job, request)
        except UnknownJob:
            raise _none_left(request) from None
        return job.job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a link, or stock that will not be wanted any more."""
        self._check(job_id, owner)
        self._operator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a link that was let go."""
        self._check(job_id, owner)
        self._operator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, batch_only: bool) -> None:
        """Signal a link."""
        self._check(job_id, owner)
        self._operator.signal(job_id, owner, signal, batch_only=batch_only)

    def _let_go(self, job: Job, request: JobRequest) -> None:
        """Nice and begin first: a job that is free may start the same instant."""
        if request.nice != job.nice or request.begin:
            self._operator.update(job.job_id, job.user, JobChange(nice=request.nice, begin=request.begin or None))
        if not request.held:
            self._operator.update(job.job_id, job.user, JobChange(held=False))

    def _check(self, job_id: JobId, owner: str) -> None:
        if not self._seen.holds(job_id, owner):
            raise NotPermitted(f"job {job_id} is not a link of {owner} that the last snapshot shows")


def _is_stock(job: Job, known: JobId) -> bool:
    held = job.held or job.reason == _HELD_BY_ADMIN
    return job.state is JobState.PENDING and held and job.job_id != known


def _none_left(request: JobRequest) -> SubmissionRejected:
    return SubmissionRejected(
        "NoHeldLink",
        f"{request.user} has no held job with the tag {request.tag}: submit more (`mirage submit --held-links N`)",
    )
