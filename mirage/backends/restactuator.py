"""Acting on jobs through slurmrestd, with a token of each job's owner."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage.backends.links_only import JobIdentity
from mirage.backends.rest import RestConnection, RestVersion, user_name
from mirage.backends.restclient import Credentials, RestClient
from mirage.domain.errors import (
    BadSpelling,
    ClusterUnavailable,
    MirageError,
    NotPermitted,
    UnknownJob,
    UnsupportedSlurm,
)
from mirage.domain.job import ABSENT, JobId, JobState, SignalReach, is_job_id, job_id_of
from mirage.slurm.rest import versions
from mirage.slurm.rest.answers import RestErrors, instant, number, text
from mirage.slurm.rest.description import describe, describe_change
from mirage.slurm.rest.queue import job_state
from mirage.slurm.rest.queue import owner as owner_of
from mirage.slurm.rest.versions import Kind, lift, lower_change, lower_submission

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.backends.restclient import RestAddress, RestResponse
    from mirage.domain.job import JobChange, JobRequest
    from mirage.ports import Clock
    from mirage.slurm.rest.answers import Record

_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,255}")
_FLAGS_SINCE = 40
_FLAGS = {SignalReach.BATCH: "BATCH_JOB", SignalReach.STEPS: "FULL_STEPS_ONLY"}
"""Without one slurmrestd signals the batch shell and the steps."""
_REACHES = {SignalReach.BATCH: "the batch shell", SignalReach.STEPS: "the steps"}
_SILENT = (40, 41)
"""In these versions the answer does not show whether a DELETE succeeded (seen on Slurm 24.11)."""

_BRIEF = 5.0
"""Timeout of the version's query when a user waits and no submission depends on it, s."""

_TELLS_UNKNOWN_JOBS = 37
"""v0.0.36 says "unknown job" for every failed query of one job, also where slurmctld is down."""


class Tokens(Protocol):
    """Source of the credentials that act for an owner."""

    def of(self, owner: str) -> Credentials:
        """Return the owner's credentials. Raises ``NotPermitted`` if the owner has none."""


@dataclass(frozen=True, slots=True)
class OwnToken:
    """One user's credentials, for that user's jobs only."""

    credentials: Credentials

    def of(self, owner: str) -> Credentials:
        """Raises ``NotPermitted`` for another owner."""
        if owner != self.credentials.user:
            raise NotPermitted(f"this service acts for {self.credentials.user} only, not for {owner}")
        return self.credentials


@dataclass(frozen=True, slots=True)
class TokenDirectory:
    """A file ``OWNER.jwt`` for each owner who lets Mirage act; taken away, Mirage may no longer."""

    directory: Path

    def of(self, owner: str) -> Credentials:
        """Raises ``NotPermitted`` naming the file that would be needed."""
        if not _OWNER.fullmatch(owner):
            raise NotPermitted(f"{owner!r} is no user name")
        file = self.directory / f"{owner}.jwt"
        if not file.is_file():
            raise NotPermitted(f"no token for {owner}: {file} does not exist (scontrol token username={owner})")
        return Credentials(owner, str(file))


class RestActuator:
    """``Actuator`` through one slurmrestd: each act is asked for as the job's owner, and Slurm judges it."""

    def __init__(
        self,
        address: RestAddress,
        tokens: Tokens,
        clock: Clock,
        version: RestVersion | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._address = address
        self._tokens = tokens
        self._clock = clock
        self._version = version or RestVersion()
        self._timeout = timeout

    def check(self, request: JobRequest) -> None:
        """Raise ``SubmissionRejected`` for what slurmrestd cannot carry, known from the request alone.

        Where the version is not known and is not available soon, for what no version can carry. Not for the loop.
        """
        description = describe(request, self._clock.now())
        try:
            client = RestClient(self._address, self._tokens.of(request.user), min(self._timeout, _BRIEF))
            version = self._version.of(client)
        except (ClusterUnavailable, NotPermitted, UnsupportedSlurm):
            return
        lower_submission(version, description)

    def submit(self, request: JobRequest) -> JobId:
        """Submit a batch job.

        Raises ``SubmissionRejected`` also naming an option for which this version has no field.
        """
        rest = self._rest(request.user)
        version = rest.number()
        description = describe(request, self._clock.now(), socket.gethostname(), version)
        answer = rest.ask("POST", "job/submit", lower_submission(version, description))
        job_id = answer.body.get("job_id")
        # An error next to the ID may be only a remark: "is held".
        if type(job_id) is int and is_job_id(job_id):
            return job_id_of(job_id)
        if not answer.errors:
            rest.unavailable("POST job/submit", "the answer has neither a job id nor an error")
        raise RestErrors.read(answer.errors).of_submission(f"submission as {rest.client.credentials}")

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job; one that has ended is no error."""
        rest = self._rest(owner)
        if rest.number() in _SILENT and self._owned(rest, job_id, owner).finished:
            return
        errors = _errors(rest.ask("DELETE", f"job/{job_id}"))
        if errors and not RestErrors.read(errors).already_ended:
            raise _fault(rest, f"cancel job {job_id}", errors)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Hold, release, nice or put off a pending job; Slurm would let some of it be done to running ones."""
        rest = self._rest(owner)
        self._expect(rest, job_id, JobState.PENDING)
        body = lower_change(rest.number(), describe_change(change))
        if errors := rest.ask("POST", f"job/{job_id}", body).errors:
            raise _fault(rest, f"change job {job_id}", errors)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Send a signal.

        Raises ``NotPermitted`` for the batch shell alone, or the steps alone, before v0.0.40, which signals all or
        none: a batch shell that expects no signal would end by it, and its steps with it.
        """
        rest = self._rest(owner)
        self._expect(rest, job_id, JobState.RUNNING)
        number = rest.number()
        if reach is not SignalReach.ALL and number < _FLAGS_SINCE:
            raise NotPermitted(
                f"{versions.spell(number)} of slurmrestd cannot signal {_REACHES[reach]} of job {job_id} alone; "
                f"{versions.spell(_FLAGS_SINCE)} can (Slurm 23.11)"
            )
        flags = f"&flags={_FLAGS[reach]}" if reach in _FLAGS else ""
        if number in _SILENT:
            self._owned(rest, job_id, owner)
        if errors := _errors(rest.ask("DELETE", f"job/{job_id}?signal={signal}{flags}")):
            raise _fault(rest, f"signal job {job_id}", errors)

    def identify(self, job_id: JobId, owner: str) -> JobIdentity:
        """Owner, comment, submission time and state of a job, queried as ``owner``.

        Raises ``UnknownJob``, ``NotPermitted`` and ``ClusterUnavailable``.
        """
        rest = self._rest(owner)
        jobs = _lifted(rest, self._look(rest, job_id), job_id)
        if not jobs:
            raise UnknownJob(f"job {job_id} is not known to Slurm")
        job = jobs[0]
        try:
            return JobIdentity(
                owner_of(job, user_name),
                text(job, "comment"),
                instant(job, "submit_time"),
                job_state(job),
                alone=not (number(job, "array_task_id") != ABSENT or text(job, "array_task_string")),
            )
        except BadSpelling as error:
            rest.unavailable("GET job", str(error))

    def _rest(self, owner: str) -> RestConnection:
        credentials = self._tokens.of(owner)
        credentials.check_expiry(self._clock.now())
        return RestConnection(RestClient(self._address, credentials, self._timeout), self._version)

    def _owned(self, rest: RestConnection, job_id: JobId, owner: str) -> JobState:
        """The state of a job of this owner's. Raises ``NotPermitted`` for another's, ``UnknownJob`` for none."""
        answer = rest.ask("GET", f"job/{job_id}")
        if answer.errors:
            raise _fault(rest, f"look at job {job_id}", answer.errors)
        states = _states(rest, answer, job_id)
        if not states:
            raise UnknownJob(f"job {job_id} is not known to Slurm")
        others = {job.get("user_name") for job in answer.body["jobs"]} - {owner}
        if others:
            raise NotPermitted(f"job {job_id} is {', '.join(map(str, others))}'s, not {owner}'s")
        return states[0]

    def _expect(self, rest: RestConnection, job_id: JobId, state: JobState) -> None:
        """Raise ``UnknownJob`` unless the job is in that state."""
        states = _states(rest, self._look(rest, job_id), job_id)
        if state not in states:
            seen = ", ".join(sorted({other.name for other in states})) or "not known to Slurm"
            raise UnknownJob(f"job {job_id} is not {state.name} but {seen}")

    def _look(self, rest: RestConnection, job_id: JobId) -> RestResponse:
        alone = rest.number() >= _TELLS_UNKNOWN_JOBS
        answer = rest.ask("GET", f"job/{job_id}" if alone else "jobs")
        if answer.errors:
            raise _fault(rest, f"look at job {job_id}", answer.errors)
        return answer


def _states(rest: RestConnection, answer: RestResponse, job_id: JobId) -> list[JobState]:
    try:
        return [job_state(job) for job in _lifted(rest, answer, job_id)]
    except BadSpelling as error:
        rest.unavailable("GET job", str(error))


def _lifted(rest: RestConnection, answer: RestResponse, job_id: JobId) -> list[Record]:
    """The job, or the tasks of the array, in the newest shape."""
    jobs = answer.body.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        rest.unavailable("GET job", "the answer has no list of jobs")
    try:
        return [lift(Kind.JOB, rest.number(), job) for job in jobs if job_id in (job.get("job_id"), _array(job))]
    except BadSpelling as error:
        rest.unavailable("GET job", str(error))


def _array(job: Record) -> int | None:
    """The ID of the array that the job is a task of, or ``None``."""
    array = job.get("array_job_id")
    number = array.get("number") if isinstance(array, dict) else array
    return number if isinstance(number, int) else None


def _errors(answer: RestResponse) -> list[Record]:
    """The errors of a DELETE: since v0.0.42 each job has a separate list of errors."""
    status = answer.body.get("status")
    told = [entry.get("error") for entry in status if isinstance(entry, dict)] if isinstance(status, list) else []
    each = [error for error in told if isinstance(error, dict) and error.get("code")]
    return answer.errors + [{"error_number": error["code"], "error": error.get("string")} for error in each]


def _fault(rest: RestConnection, what: str, errors: list[Record]) -> MirageError:
    return RestErrors.read(errors).of_act(f"{what} as {rest.client.credentials}")
