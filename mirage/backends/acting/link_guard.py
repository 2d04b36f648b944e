"""Acts on links alone, checked by the daemon itself: where no process of the user's stands between it and Slurm.

A job ID may have been given to another job since the snapshot, or since the link was stored. So each act asks
Slurm about the job first. Between the query and the act lie milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.links_only import LINK_TAG
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT
from mirage.domain.linkidentity import NO_IDENTITIES, is_mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.backends.acting.links_only import Identity
    from mirage.domain.job import Job, JobChange, JobId, JobRequest, SignalReach
    from mirage.domain.linkidentity import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator, Cluster


class LinkGuard:
    """``Cluster`` and ``Actuator``: raises ``NotPermitted`` for an act on a job that is no link of its owner.

    A link is known by its comment; where that was edited, by the submit time that the last snapshot has shown.
    ``identify`` asks Slurm about a job of an owner, one query for each act; it raises what acts may raise. Acts
    may come from several threads.
    """

    def __init__(self, cluster: Cluster, actuator: Actuator, identify: Callable[[JobId, str], Identity]) -> None:
        self._cluster = cluster
        self._actuator = actuator
        self._identify = identify
        self._seen: Mapping[tuple[JobId, str], Job] = {}

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Return the wrapped cluster's snapshot and remember its links and their rivals for later checks."""
        snapshot = self._cluster.snapshot(queue=queue, expected=expected, identities=identities)
        jobs = (*snapshot.rivals, *snapshot.links.values())
        self._seen = {(job.job_id, job.user): job for job in jobs if not job.state.finished}
        return snapshot

    def submit(self, request: JobRequest) -> JobId:
        """Submit through the wrapped actuator, without a check: there is no job yet."""
        return self._actuator.submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a link, checked before."""
        self._check(job_id, owner)
        self._actuator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a link, checked before."""
        self._check(job_id, owner)
        self._actuator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal a link, checked before."""
        self._check(job_id, owner)
        self._actuator.signal(job_id, owner, signal, reach=reach)

    def _check(self, job_id: JobId, owner: str) -> None:
        job, seen = self._identify(job_id, owner), self._seen.get((job_id, owner))
        if job.user == owner and _is_seen(job, seen):
            return
        raise NotPermitted(f"job {job_id} is not a link of {owner}: its comment is no tag of the link")


def _is_seen(job: Identity, seen: Job | None) -> bool:
    """Whether a job is a link: the one that was ``seen``, where one was."""
    if LINK_TAG.fullmatch(job.tag):
        return seen is None or is_mark_of(job.tag, seen.tag)
    return seen is not None and job.submit == seen.submit != ABSENT
