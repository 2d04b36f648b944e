"""Acts of an account with AdminLevel Operator on other users' jobs: no more than their owners could do.

Slurm grants an Operator more than an owner: a nice value below 0, the release of a job that an administrator
holds, a release that takes back an administrator's priority. So each action first queries Slurm about the job, and
does nothing that Slurm would deny to the owner. Milliseconds pass between the query and the action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.backends.acting.links_only import LINK_TAG
from mirage.backends.cli_actuator import CliActuator
from mirage.domain.errors import BadSpelling, ClusterUnavailable, NotPermitted, UnknownJob
from mirage.domain.job import JobState, is_failed_launch
from mirage.slurm import wording
from mirage.slurm.rows import CELL
from mirage.slurm.state import parse_state

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.domain.job import JobChange, JobId, JobRequest, SignalReach

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

    def __init__(self, commands: Commands) -> None:
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
            raise wording.refused_act(answer.said, what)
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
            raise wording.refused_act(answer.said, f"scontrol uhold {job_id}")

    def _as_owner(self, owner: str) -> CliActuator:
        return CliActuator(self._commands, owner)


def _waits(word: str, what: str) -> bool:
    """Whether a job in this state is in the queue: one that is held after a requeue is not PENDING in name."""
    try:
        return word == "REQUEUED" or parse_state(word) is JobState.PENDING
    except BadSpelling as fault:
        raise ClusterUnavailable(f"{what}: {fault}") from fault
