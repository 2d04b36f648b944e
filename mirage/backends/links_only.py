"""Permitted actions on behalf of a user: on Mirage's links, and on nothing else.

``LinksOnly`` runs in a process of the user. The sender of the requests is trusted to time links; this check
ensures that it cannot act on any other job. ``LinkGuard`` is the check of the daemon itself, where no process of
the user stands between it and Slurm. A job ID may have been given to another job since the snapshot, or since the
link was stored. So each act asks Slurm about the job first. Between the query and the act lie milliseconds.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.bounds import path_problem
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT, Seconds
from mirage.domain.link import NO_IDENTITIES, is_mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.backends.agent_requests import AgentResponse
    from mirage.domain.files import FileState
    from mirage.domain.job import Job, JobChange, JobId, JobRequest, JobState, SignalReach
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator, Cluster

if TYPE_CHECKING:
    Check = Callable[[tuple[str, ...]], tuple[FileState, ...]]

LINK_TAG = re.compile(r"mirage:[A-Za-z0-9_.-]+:[1-9][0-9]{0,8}", re.ASCII)
"""The comment of a job that is a link."""
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,15}|[1-9][0-9]?", re.ASCII)
_OURS = "comment"
"""The ``sbatch`` option that would replace the tag."""
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Owner and tag of a job."""

    user: str
    tag: str
    """The job's comment; empty where it has none."""
    submit: Seconds = ABSENT
    """Slurm's submit time of the job."""
    state: JobState | None = None
    """``None``: Slurm's word for it is not known."""
    alone: bool = True
    """False for a task of an array or a component of a heterogeneous job, where Slurm reports that."""


class CheckedActuator(ABC):
    """Acts of an ``Actuator`` on jobs that ``_check_link`` permits."""

    def __init__(self, actuator: Actuator) -> None:
        self._actuator = actuator

    @abstractmethod
    def _check_link(self, job_id: JobId, owner: str) -> None:
        """Raise ``NotPermitted`` for a job that is no link of ``owner``, or what a query to Slurm raises."""

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job, checked before."""
        self._check_link(job_id, owner)
        self._actuator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a job, checked before."""
        self._check_link(job_id, owner)
        self._actuator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal a job, checked before."""
        self._check_link(job_id, owner)
        self._actuator.signal(job_id, owner, signal, reach=reach)


class LinksOnly(CheckedActuator):
    """An ``Actuator`` that rejects, with ``NotPermitted``, whatever is not about a link of ``user``.

    ``identify`` asks Slurm about a job; it raises ``UnknownJob`` and ``ClusterUnavailable``. ``check``: whether
    regular files of ``user`` exist, as this process sees them.
    """

    def __init__(
        self,
        actuator: Actuator,
        user: str,
        identify: Callable[[JobId], JobIdentity],
        check: Check,
        adopt: Callable[[JobId], AgentResponse] | None = None,
    ) -> None:
        super().__init__(actuator)
        self._adopt = adopt
        self._user = user
        self._identify = identify
        self._check = check

    def submit(self, request: JobRequest) -> JobId:
        """Submit a link: a job with a tag, a script, and options that leave the tag alone."""
        self._check_user(request.user)
        if not LINK_TAG.fullmatch(request.tag):
            raise NotPermitted(f"{request.tag!r} is not the tag of a link (mirage:CHAIN:NUMBER)")
        if request.batch is None:
            raise NotPermitted(f"{request.tag}: the request has no script")
        for option in request.batch.options:
            _check_option(option)
        return self._actuator.submit(request)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal the job if it is a link of ``owner``; else, or for no signal name, raise ``NotPermitted``."""
        if not _SIGNAL.fullmatch(signal):
            raise NotPermitted(f"{signal!r} is not the name of a signal")
        super().signal(job_id, owner, signal, reach=reach)

    def check_files(self, paths: tuple[str, ...], owner: str) -> tuple[FileState, ...]:
        """Whether regular files of the user exist; nothing else about them is disclosed."""
        self._check_user(owner)
        if len(paths) > _MOST_FILES:
            raise NotPermitted(f"asked to check {len(paths)} files: at most {_MOST_FILES} are checked")
        for path in paths:
            if problem := path_problem(path):
                raise NotPermitted(f"{path[:80]!r}: {problem}")
        return self._check(paths)

    def adopt_job(self, job_id: JobId, owner: str) -> AgentResponse:
        """Make a job of the user link 1 of a new chain, if the job itself asks for that."""
        self._check_user(owner)
        if self._adopt is None:
            raise NotPermitted(f"job {job_id}: this process adopts no jobs")
        return self._adopt(job_id)

    def _check_user(self, owner: str) -> None:
        if owner != self._user:
            raise NotPermitted(f"asked to act for {owner}, but this process is {self._user}'s")

    def _check_link(self, job_id: JobId, owner: str) -> None:
        self._check_user(owner)
        job = self._identify(job_id)
        if job.user != self._user or not LINK_TAG.fullmatch(job.tag):
            raise NotPermitted(f"job {job_id} is not a link of {self._user} (its comment is no tag of Mirage)")


def _check_option(option: str) -> None:
    """Raises ``NotPermitted`` for what ``sbatch`` would take for a script, or for another comment."""
    if not option.startswith("-") or option.strip("-") == "":
        raise NotPermitted(f"{option!r} is not an option of sbatch")
    if option.startswith("--") and _OURS.startswith(option[2:].split("=", maxsplit=1)[0]):
        raise NotPermitted(f"{option!r}: the comment of a link is its tag")


class LinkGuard(CheckedActuator):
    """``Cluster`` and ``Actuator``: raises ``NotPermitted`` for an act on a job that is no link of its owner.

    A link is known by its comment; where that was edited, by the submit time that the last snapshot has shown.
    ``identify`` asks Slurm about a job of an owner, one query for each act; it raises what acts may raise. Acts
    may come from several threads.
    """

    def __init__(
        self, cluster: Cluster, actuator: Actuator, identify: Callable[[JobId, str], JobIdentity]
    ) -> None:
        super().__init__(actuator)
        self._cluster = cluster
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

    def _check_link(self, job_id: JobId, owner: str) -> None:
        job, seen = self._identify(job_id, owner), self._seen.get((job_id, owner))
        if job.user == owner and _is_seen(job, seen):
            return
        raise NotPermitted(f"job {job_id} is not a link of {owner}: its comment is no tag of the link")


def _is_seen(job: JobIdentity, seen: Job | None) -> bool:
    """Whether a job is a link: the one that was ``seen``, where one was."""
    if LINK_TAG.fullmatch(job.tag):
        return seen is None or is_mark_of(job.tag, seen.tag)
    return seen is not None and job.submit == seen.submit != ABSENT
