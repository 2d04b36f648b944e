"""Permitted actions on behalf of a user, checked on the user's side: on Mirage's links, and on nothing else.

The sender of the requests is trusted to time links. This check, in a process that runs as the user, ensures that
it cannot act on any other job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.bounds import path_problem
from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.files import FileState
    from mirage.domain.job import JobChange, JobId, JobRequest, JobState, SignalReach
    from mirage.ports import Actuator

    Check = Callable[[tuple[str, ...]], tuple[FileState, ...]]

LINK_TAG = re.compile(r"mirage:[A-Za-z0-9_.-]+:[1-9][0-9]{0,8}", re.ASCII)
"""The comment of a job that is a link."""
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,15}|[1-9][0-9]?", re.ASCII)
_OURS = "comment"
"""The ``sbatch`` option that would replace the tag."""
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
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


class LinksOnly:
    """An ``Actuator`` that rejects, with ``NotPermitted``, whatever is not about a link of ``user``.

    ``identify`` asks Slurm about a job; it raises ``UnknownJob`` and ``ClusterUnavailable``. ``check``: whether
    regular files of ``user`` exist, as this process sees them.
    """

    def __init__(self, actuator: Actuator, user: str, identify: Callable[[JobId], Identity], check: Check) -> None:
        self._actuator = actuator
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

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel the job if it is a link of ``owner``; else raise ``NotPermitted``."""
        self._check_link(job_id, owner)
        self._actuator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change the job if it is a link of ``owner``; else raise ``NotPermitted``."""
        self._check_link(job_id, owner)
        self._actuator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal the job if it is a link of ``owner``; else, or for no signal name, raise ``NotPermitted``."""
        if not _SIGNAL.fullmatch(signal):
            raise NotPermitted(f"{signal!r} is not the name of a signal")
        self._check_link(job_id, owner)
        self._actuator.signal(job_id, owner, signal, reach=reach)

    def check_files(self, paths: tuple[str, ...], owner: str) -> tuple[FileState, ...]:
        """Whether regular files of the user exist; nothing else about them is disclosed."""
        self._check_user(owner)
        if len(paths) > _MOST_FILES:
            raise NotPermitted(f"asked to check {len(paths)} files: at most {_MOST_FILES} are checked")
        for path in paths:
            if problem := path_problem(path):
                raise NotPermitted(f"{path[:80]!r}: {problem}")
        return self._check(paths)

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
