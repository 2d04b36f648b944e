"""Jobs that users submitted with plain ``sbatch`` and that ask for a chain: looks at each once, in a thread.

What a job asks for is read, and acted on, in a process of its owner (``mirage.backends.marked_jobs``). Here it is
decided only which jobs are looked at, when, and what is reported. An adopted job bears the mark of its link as
comment, and one that cannot be adopted the reason: both are known to every daemon and after every restart.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain as joined
from typing import TYPE_CHECKING

import numpy as np

from mirage.atomic_file import read_regular, write_atomically
from mirage.backends.agent_requests import AgentResponse, Verdict
from mirage.documentreading import parse_json
from mirage.domain.errors import MirageError
from mirage.domain.job import is_job_id, job_id_of
from mirage.domain.tags import split_tag
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from mirage.backends.marked_jobs import Adopter
    from mirage.control.status import Status
    from mirage.domain.job import JobId

_LOG = logging.getLogger(__name__)

EVERY = 10.0
"""Real seconds between two runs."""
MOST_LOOKS = 12
"""Jobs that one run looks at, of all users. Each costs slurmctld two small RPCs, once."""
PAUSES = (30.0, 120.0, 600.0)
"""Real seconds before a job is looked at again whose look has failed; then it is given up."""
_BLOCKED = 120.0
"""Real seconds before a job is looked at again that waits for other jobs."""
_USER_PAUSE, _LONGEST_PAUSE = 60.0, 3_600.0
"""Real seconds in which a user is passed over for whom no process acts; they double each time."""
MOST_REMEMBERED = 200_000
_LARGEST = 16 * MOST_REMEMBERED
_LONGEST_REASON = 300


def unlinked_jobs(status: Status, users: Iterable[str]) -> dict[str, list[JobId]]:
    """Jobs of these users in the queue that are no links, by user, newest first."""
    snapshot = status.snapshot
    tagged = joined(snapshot.links.values(), snapshot.rivals, snapshot.stock or ())
    taken = {(job.user, int(job.job_id)) for job in tagged}
    taken |= {(record.chain.owner, int(link.job_id)) for record in status.chains for link in record.links}
    codes = {name: code for code, name in enumerate(snapshot.users)}
    ids = np.concatenate([snapshot.pending.job_id, snapshot.running.job_id])
    owners = np.concatenate([snapshot.pending.user, snapshot.running.user])
    found: dict[str, list[JobId]] = {}
    for user in users:
        if user in codes:
            own = np.unique(ids[owners == codes[user]])[::-1].tolist()
            found[user] = [job_id_of(job) for job in own if is_job_id(job) and (user, job) not in taken]
    return found


@dataclass(slots=True)
class _Attempts:
    """Attempts that failed, of a job or a user."""

    failed: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class SettledJobs:
    """Jobs in the queue that were looked at; a file keeps them over restarts as far as it can be written."""

    file: Path
    jobs: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        try:
            found = parse_json(read_regular(self.file, _LARGEST), most=2 * MOST_REMEMBERED)
            self.jobs = {job for job in found if isinstance(job, int) and is_job_id(job)}
        except (OSError, ValueError, TypeError):
            self.jobs = set()

    def keep(self, present: Iterable[int]) -> None:
        """Forget jobs that are not in the queue any more, and write the others down."""
        self.jobs.intersection_update(present)
        try:
            write_atomically(self.file, json.dumps(sorted(self.jobs)[-MOST_REMEMBERED:]).encode())
        except OSError as error:
            _LOG.warning("event=looked_at_not_stored error=%r", str(error))


class AdoptionWatch:
    """Has each marked job adopted. For one thread, which is not the loop's."""

    def __init__(
        self,
        adopter: Adopter,
        status: Callable[[], Status],
        file: Path,
        announce: Callable[[str, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``announce`` gets a user and a sentence about a job of that user that asks for a chain in vain."""
        self._adopter = adopter
        self._status = status
        self._settled = SettledJobs(file)
        self._announce = announce
        self._now = now
        self._jobs: defaultdict[int, _Attempts] = defaultdict(_Attempts)
        self._users: defaultdict[str, _Attempts] = defaultdict(_Attempts)
        self._first = 0
        self.busy = True
        """Whether jobs of the first cycle are still to be looked at. Any thread."""

    def run(self) -> str:
        """Look at some jobs; returns how many became links, empty where none did. Raises ``MirageError``."""
        status = self._status()
        self.busy = status.asked and not status.snapshot.stale and not status.problem
        try:
            return self._look(status) if self.busy else ""
        finally:
            self.busy = False

    def _look(self, status: Status) -> str:
        found = unlinked_jobs(status, self._served(status))
        present = {int(job) for jobs in found.values() for job in jobs}
        due = {user: self._due(user, jobs) for user, jobs in found.items()}
        chosen = self._chosen({user: jobs for user, jobs in due.items() if jobs})
        adopted = sum(self._settle(user, job) for user, job in chosen)
        self._tell_interrupted(status)
        for gone in self._jobs.keys() - present:
            del self._jobs[gone]
        if chosen or self._settled.jobs - present:
            self._settled.keep(present)
        return f"{adopted} jobs became link 1 of a chain" if adopted else ""

    def _tell_interrupted(self, status: Status) -> None:
        """Report jobs whose adoption has failed after the mark was set: no chain has them, and none will."""
        known = {record.chain.chain_id for record in status.chains}
        for job in status.snapshot.links.values():
            found = split_tag(job.tag)
            if int(job.job_id) in self._jobs and found is not None and found[0] not in known:
                what = f"its comment is the mark of chain {found[0]}, which this daemon does not have"
                advice = f"scontrol update JobId={job.job_id} Comment= and mirage adopt {job.job_id}"
                self._reject(job.user, job.job_id, f"{what}; if no other daemon has it: {advice}")

    def _served(self, status: Status) -> list[str]:
        if self._adopter.serves is None:
            return sorted({record.chain.owner for record in status.chains} & set(status.snapshot.users))
        return [user for user in status.snapshot.users if self._adopter.serves(user)]

    def _due(self, user: str, jobs: Sequence[JobId]) -> list[JobId]:
        now = self._now()
        if user in self._users and now < self._users[user].not_before:
            return []
        waits = {job for job, turn in self._jobs.items() if now < turn.not_before}
        return [job for job in jobs if job not in self._settled.jobs and job not in waits]

    def _chosen(self, due: dict[str, list[JobId]]) -> list[tuple[str, JobId]]:
        """One job of each user in turn, until there are enough; the next run begins with the next user."""
        users = sorted(due)
        if not users:
            return []
        first = self._first % len(users)
        users = users[first:] + users[:first]
        self._first += 1
        deepest = max(len(jobs) for jobs in due.values())
        turns = ((user, due[user][at]) for at in range(deepest) for user in users if at < len(due[user]))
        return [each for each, _ in zip(turns, range(MOST_LOOKS), strict=False)]

    def _settle(self, user: str, job: JobId) -> bool:
        """Whether the job has become a link."""
        if user in self._users and self._now() < self._users[user].not_before:
            return False  # an earlier job of this run has shown that no process acts for the user
        try:
            answer = self._adopter.adopt(user, job)
        except MirageError as error:
            answer, acts = AgentResponse.failed(error), False
        else:
            acts = answer.verdict is not Verdict.NOT_PERMITTED
        if acts:
            self._users.pop(user, None)
        else:
            self._pass_over(user)
        return self._note(user, job, answer)

    def _note(self, user: str, job: JobId, answer: AgentResponse) -> bool:
        match answer.verdict:
            case Verdict.BLOCKED:
                self._jobs[job].not_before = self._now() + _BLOCKED
                return False
            case Verdict.NOT_PERMITTED:  # nothing of the job
                _LOG.info("event=adoption_delayed user=%s job=%d reason=%r", user, job, answer.text)
                return False
            case Verdict.UNAVAILABLE | Verdict.TOO_LATE:
                turn = self._jobs[job]
                if turn.failed < len(PAUSES):
                    turn.not_before = self._now() + PAUSES[turn.failed]
                    turn.failed += 1
                    _LOG.info("event=adoption_delayed user=%s job=%d reason=%r", user, job, answer.text)
                    return False
                self._reject(user, job, answer.text)
            case Verdict.REJECTED:
                self._reject(user, job, answer.text)
            case Verdict.DONE if answer.job_id == job:
                _LOG.info("event=job_adopted user=%s job=%d chain=%s", user, job, answer.text)
        self._jobs.pop(job, None)
        self._settled.jobs.add(job)
        return answer.verdict is Verdict.DONE and answer.job_id == job

    def _reject(self, user: str, job: JobId, reason: str) -> None:
        reason = one_line(reason, _LONGEST_REASON)
        _LOG.warning("event=job_not_adopted user=%s job=%d reason=%r", user, job, reason)
        self._announce(user, f"job {job} asks for a chain but does not become one: {reason}")

    def _pass_over(self, user: str) -> None:
        turn = self._users[user]
        turn.not_before = self._now() + min(_USER_PAUSE * 2**turn.failed, _LONGEST_PAUSE)
        turn.failed = min(turn.failed + 1, 10)
