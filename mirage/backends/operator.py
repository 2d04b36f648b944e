"""Actions of an account with AdminLevel Operator on other users' jobs, and the release of their held links.

Slurm grants an Operator more than an owner: a nice value below 0, the release of a job that an administrator
holds, a release that takes back an administrator's priority. So each action first queries Slurm about the job, and
does nothing that Slurm would deny to the owner. Milliseconds pass between the query and the action.

Held links: the owner submits jobs with the tags of the links to come and Slurm's ``--hold``. They are the
**stock**. Asked to submit a link, Mirage releases the job of its tag; no process acts on behalf of another user.
This touches only links of the owner that is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.cli_actuator import CliActuator
from mirage.backends.links_only import LINK_TAG, CheckedActuator
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import BadSpelling, ClusterUnavailable, NotPermitted, UnknownJob
from mirage.domain.job import ABSENT, JobChange, JobState, is_failed_launch
from mirage.domain.link import NO_IDENTITIES, NO_JOB
from mirage.domain.tags import HeldJobs
from mirage.slurm import error_messages
from mirage.slurm.job_state import parse_state
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.backends.execution import CommandRunner
    from mirage.domain.job import Job, JobId, JobRequest, SignalReach
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator, Cluster

_HELD_BY_OWNER = "JobHeldUser"
_FIELDS = ("%u", "%T", "%Q", "%r", "%k")


@dataclass(frozen=True, slots=True)
class _Hold:
    """The reasons why a job is held."""

    by_owner: bool
    by_others: bool
    """Priority 0 for another reason: an administrator's hold, or Slurm's own after a failed start."""


class OperatorActuator:
    """An ``Actuator`` for links that exist already; Slurm rejects where its account is no Operator.

    ``NotPermitted`` for a job that is no link of its owner, and for a change that the owner could not make.
    """

    def __init__(self, commands: CommandRunner) -> None:
        self._commands = commands

    def submit(self, request: JobRequest) -> JobId:
        """Not possible: raises ``NotPermitted``."""
        raise NotPermitted(f"an Operator cannot submit {request.tag or request.name} for {request.user}")

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Run ``scancel`` for a link of ``owner``; raises ``NotPermitted`` for any other job."""
        self._hold_of(job_id, owner)
        self._as_owner(owner).cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Change a job as its owner could; a hold is set as its owner's, who can release it."""
        if change.nice is not None and change.nice < 0:
            raise NotPermitted(f"job {job_id}: {owner} may not set a nice value below 0")
        hold = self._hold_of(job_id, owner)
        if change.held is not None and hold.by_others:
            raise NotPermitted(f"job {job_id} is held by an administrator or by Slurm; only they can release it")
        if change.held is not None and change.held is hold.by_owner:
            change = replace(change, held=None)  # a release of a free job would undo an administrator's priority
        self._as_owner(owner).update(job_id, owner, replace(change, held=None if change.held else change.held))
        if change.held:
            self._keep_back(job_id)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Run ``scancel --signal`` for a link of ``owner``; raises ``NotPermitted`` for any other job."""
        self._hold_of(job_id, owner)
        self._as_owner(owner).signal(job_id, owner, signal, reach=reach)

    def _hold_of(self, job_id: JobId, owner: str) -> _Hold:
        """Raises ``NotPermitted`` for a job that is no link of ``owner``."""
        what, shape = f"squeue --jobs={job_id}", CELL.join(_FIELDS)
        answer = self._commands.run(
            ["squeue", "--noheader", "--all", "--states=all", f"--jobs={job_id}", f"--format={shape}"]
        )
        if answer.status:
            raise error_messages.refused_act(answer.said, what)
        if not answer.out.strip():
            raise UnknownJob(f"{what}: no such job")
        cells = answer.out.rstrip("\n").split(CELL)
        if len(cells) != len(_FIELDS):
            raise ClusterUnavailable(f"{what}: expected one job with {len(_FIELDS)} fields")
        user, word, priority, reason, tag = cells
        if user != owner or not LINK_TAG.fullmatch(tag):
            raise NotPermitted(f"job {job_id} is not a link of {owner}")
        by_owner = reason == _HELD_BY_OWNER or is_failed_launch(reason)
        return _Hold(by_owner, _waits(word, what) and not by_owner and priority == "0")

    def _keep_back(self, job_id: JobId) -> None:
        """``uhold``: an Operator's ``hold`` is an administrator's, which the owner could not undo."""
        answer = self._commands.run(["scontrol", "uhold", str(job_id)])
        if answer.status:
            raise error_messages.refused_act(answer.said, f"scontrol uhold {job_id}")

    def _as_owner(self, owner: str) -> CliActuator:
        return CliActuator(self._commands, owner)


def _waits(word: str, what: str) -> bool:
    """Whether a job in this state is in the queue: one that is held after a requeue is not PENDING in name."""
    try:
        return word == "REQUEUED" or parse_state(word) is JobState.PENDING
    except BadSpelling as fault:
        raise ClusterUnavailable(f"{what}: {fault}") from fault


_HELD_BY_ADMIN = "JobHeldAdmin"


@dataclass(frozen=True, slots=True)
class _Seen:
    """Our jobs in the last snapshot."""

    links: tuple[Job, ...] = ()
    stock: HeldJobs = field(default_factory=HeldJobs)

    def holds(self, job_id: JobId, owner: str) -> bool:
        """Whether the job is a link, or stock, of ``owner``."""
        return any(job.job_id == job_id and job.user == owner for job in (*self.links, *self.stock))


class ReleaseCluster(CheckedActuator):
    """``Cluster`` and ``Actuator`` over stock: for the loop a job exists from the moment it is asked for."""

    def __init__(self, cluster: Cluster, operator: Actuator) -> None:
        super().__init__(operator)
        self._cluster = cluster
        self._seen = _Seen()

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The cluster's snapshot, the stock apart from its links.

        A held job is stock unless the loop knows it as a link by its id: then its owner, or the steering, holds
        it back, and it is shown. So a release whose answer was lost shows as a link once the job is no longer
        held, and is asked for again where it never happened. The one case that looks the same: a job that was
        released and held again by its owner before any snapshot showed it free, while its id was not stored; it
        is released a second time. Stock that ended as such, cancelled, was never a link and is not shown either.
        """
        snapshot = self._cluster.snapshot(queue=queue, expected=expected, identities=identities)
        jobs = (*snapshot.links.values(), *snapshot.rivals)
        stock = HeldJobs(job for job in jobs if _is_stock(job, expected))
        wanted = tuple(
            job for job in jobs if not (_is_stock(job, expected) or _ended_as_stock(job, stock, expected))
        )
        links = {job.tag: job for job in reversed(wanted)}
        self._seen = _Seen(wanted, stock)
        rivals = tuple(job for job in wanted if links[job.tag] is not job)
        return replace(snapshot, links=links, rivals=rivals, stock=tuple(stock))

    def submit(self, request: JobRequest) -> JobId:
        """Let the held job of this tag go; returns its id.

        Raises ``NotPermitted`` where its owner has left none, or an administrator holds it.
        """
        job = self._seen.stock.find(request.tag, request.user)
        if job is None:
            raise _none_left(request)
        if job.reason == _HELD_BY_ADMIN:
            raise NotPermitted(f"an administrator holds job {job.job_id} ({request.tag})")
        try:
            self._let_go(job, request)
        except UnknownJob:
            raise _none_left(request) from None
        return job.job_id

    def _let_go(self, job: Job, request: JobRequest) -> None:
        """Change the conditions first, as a released job may start immediately; nice is only raised.

        The dependencies from its owner's submission are replaced by the requested ones. A job that is bound to its
        predecessor's nodes has no dependency instead: Slurm does not plan a dependent job.
        """
        change = JobChange(
            nice=request.nice if request.nice > job.nice else None,
            begin=request.begin or None,
            node_list=request.node_list or None,
            dependencies=request.dependencies or (() if request.node_list else None),
        )
        if change != JobChange():
            self._actuator.update(job.job_id, job.user, change)
        if not request.held:
            self._actuator.update(job.job_id, job.user, JobChange(held=False))

    def _check_link(self, job_id: JobId, owner: str) -> None:
        if not self._seen.holds(job_id, owner):
            raise NotPermitted(f"job {job_id} is not a link of {owner} that the last snapshot shows")


def _is_stock(job: Job, expected: Mapping[str, JobId]) -> bool:
    held = job.held or job.reason == _HELD_BY_ADMIN
    return job.state is JobState.PENDING and held and job.job_id != expected.get(job.tag)


def _ended_as_stock(job: Job, stock: HeldJobs, expected: Mapping[str, JobId]) -> bool:
    """Whether it never ran and was not asked for; where that is not known, whether there is another to ask for."""
    if not job.state.finished or job.start != ABSENT:
        return False
    known = expected.get(job.tag)
    if known == NO_JOB:
        return stock.find(job.tag, job.user) is not None
    return known != job.job_id


def _none_left(request: JobRequest) -> NotPermitted:
    return NotPermitted(f"{request.user} has no held job with the tag {request.tag}")
