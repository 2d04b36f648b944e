"""What an account with AdminLevel Operator does to other users' jobs with Slurm's commands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.backends.cli_actuator import CliActuator
from mirage.domain.errors import NotPermitted
from mirage.slurm import wording

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.domain.job import JobChange, JobId, JobRequest


class OperatorActuator:
    """An ``Actuator`` for jobs that exist already, whoever owns them; Slurm refuses where it is no Operator.

    It does not look at whose the jobs are: ``ReleaseCluster`` does.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def submit(self, request: JobRequest) -> JobId:
        """Not possible: raises ``NotPermitted``."""
        raise NotPermitted(f"an Operator cannot submit {request.tag or request.name} for {request.user}")

    def cancel(self, job_id: JobId, owner: str) -> None:
        """``scancel``."""
        self._as_owner(owner).cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """As the owner would; a job held is held as by its owner, who can release it."""
        if not change.held:
            self._as_owner(owner).update(job_id, owner, change)
            return
        self._as_owner(owner).update(job_id, owner, replace(change, held=None))
        self._hold(job_id)

    def signal(self, job_id: JobId, owner: str, signal: str, *, batch_only: bool) -> None:
        """``scancel --signal``."""
        self._as_owner(owner).signal(job_id, owner, signal, batch_only=batch_only)

    def _hold(self, job_id: JobId) -> None:
        """``uhold``: an Operator's ``hold`` is an administrator's, which the owner could not undo."""
        answer = self._commands.run(["scontrol", "uhold", str(job_id)])
        if answer.status:
            raise wording.refused_act(answer.said, f"scontrol uhold {job_id}")

    def _as_owner(self, owner: str) -> CliActuator:
        return CliActuator(self._commands, owner)
