"""Acting on jobs through slurmrestd, with a token of each job's owner."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage.backends.rest import Rest, RestVersion
from mirage.backends.restclient import Credentials, RestClient
from mirage.domain.errors import BadSpelling, MirageError, NotPermitted, UnknownJob, UnsupportedSlurm
from mirage.domain.job import JobId, JobState, is_job_id, job_id_of
from mirage.slurm.rest import versions
from mirage.slurm.rest.description import describe, describe_change
from mirage.slurm.rest.faults import Faults
from mirage.slurm.rest.lifting import Kind, lift
from mirage.slurm.rest.lowering import lower_change, lower_submission
from mirage.slurm.rest.queue import job_state

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.backends.restclient import Address, Answer
    from mirage.domain.job import JobChange, JobRequest
    from mirage.ports import Clock
    from mirage.slurm.rest.fields import Record

_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,255}")
_FLAGS_SINCE = 40
_SILENT = (40, 41)
"""These do not tell whether a DELETE was done (seen on Slurm 24.11)."""

_TELLS_UNKNOWN_JOBS = 37
"""v0.0.36 says "unknown job" of every question about one job that fails, also where slurmctld is down."""


class Tokens(Protocol):
    """Who acts for an owner."""

    def of(self, owner: str) -> Credentials:
        """The owner's credentials. Raises ``NotPermitted`` where there are none."""


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
        address: Address,
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

    def submit(self, request: JobRequest) -> JobId:
        """Submit a batch job.

        Raises ``SubmissionRejected`` also naming an option for which this version has no field.
        """
        rest = self._rest(request.user)
        description = describe(request, self._clock.now(), socket.gethostname())
        answer = rest.ask("POST", "job/submit", lower_submission(rest.number(), description))
        job_id = answer.body.get("job_id")
        # An error next to the ID may be only a remark: "is held".
        if type(job_id) is int and is_job_id(job_id):
            return job_id_of(job_id)
        if not answer.errors:
            rest.unavailable("POST job/submit", "the answer has neither a job id nor an error")
        raise Faults.read(answer.errors).of_submission(f"submission as {rest.client.credentials}")

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job."""
        rest = self._rest(owner)
        if rest.number() in _SILENT and self._owned(rest, job_id, owner).finished:
            return
        errors = _errors(rest.ask("DELETE", f"job/{job_id}"))
        if errors and not Faults.read(errors).already_ended:
            raise _fault(rest, f"cancel job {job_id}", errors)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Hold, release, nice or put off a pending job; Slurm would let some of it be done to running ones."""
        rest = self._rest(owner)
        self._expect(rest, job_id, JobState.PENDING)
        body = lower_change(rest.number(), describe_change(change))
        if errors := rest.ask("POST", f"job/{job_id}", body).errors:
            raise _fault(rest, f"change job {job_id}", errors)

    def signal(self, job_id: JobId, owner: str, signal: str, *, batch_only: bool) -> None:
        """Send a signal.

        Raises ``UnsupportedSlurm`` for the batch shell alone before v0.0.40, which can only signal all.
        """
        rest = self._rest(owner)
        self._expect(rest, job_id, JobState.RUNNING)
        number = rest.number()
        if batch_only and number < _FLAGS_SINCE:
            raise UnsupportedSlurm(
                f"{versions.spell(number)} of slurmrestd cannot signal the batch shell of job {job_id} alone; "
                f"{versions.spell(_FLAGS_SINCE)} can (Slurm 23.11)"
            )
        flags = "&flags=BATCH_JOB" if batch_only else ""
        if number in _SILENT:
            self._owned(rest, job_id, owner)
        if errors := _errors(rest.ask("DELETE", f"job/{job_id}?signal={signal}{flags}")):
            raise _fault(rest, f"signal job {job_id}", errors)

    def _rest(self, owner: str) -> Rest:
        return Rest(RestClient(self._address, self._tokens.of(owner), self._timeout), self._version)

    def _owned(self, rest: Rest, job_id: JobId, owner: str) -> JobState:
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

    def _expect(self, rest: Rest, job_id: JobId, state: JobState) -> None:
        """Raise ``UnknownJob`` unless the job is in that state."""
        alone = rest.number() >= _TELLS_UNKNOWN_JOBS
        answer = rest.ask("GET", f"job/{job_id}" if alone else "jobs")
        if answer.errors:
            raise _fault(rest, f"look at job {job_id}", answer.errors)
        states = _states(rest, answer, job_id)
        if state not in states:
            seen = ", ".join(sorted({other.name for other in states})) or "not known to Slurm"
            raise UnknownJob(f"job {job_id} is not {state.name} but {seen}")


def _states(rest: Rest, answer: Answer, job_id: JobId) -> list[JobState]:
    jobs = answer.body.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        rest.unavailable("GET job", "the answer has no list of jobs")
    try:
        lifted = [lift(Kind.JOB, rest.number(), job) for job in jobs if job_id in (job.get("job_id"), _array(job))]
        return [job_state(job) for job in lifted]
    except BadSpelling as error:
        rest.unavailable("GET job", str(error))


def _array(job: Record) -> int | None:
    """The array whose task it is."""
    array = job.get("array_job_id")
    number = array.get("number") if isinstance(array, dict) else array
    return number if isinstance(number, int) else None


def _errors(answer: Answer) -> list[Record]:
    """The errors of a DELETE: since v0.0.42 each job's own stands in a list of its own."""
    status = answer.body.get("status")
    told = [entry.get("error") for entry in status if isinstance(entry, dict)] if isinstance(status, list) else []
    each = [error for error in told if isinstance(error, dict) and error.get("code")]
    return answer.errors + [{"error_number": error["code"], "error": error.get("string")} for error in each]


def _fault(rest: Rest, what: str, errors: list[Record]) -> MirageError:
    return Faults.read(errors).of_act(f"{what} as {rest.client.credentials}")
