"""The port ``NodeSharing`` with Slurm's commands: ``scontrol show job`` and, if need be, ``show node``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable
from mirage.slurm import nodesharing
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.backends.execution import Commands
    from mirage.domain.job import Job


class CliNodeSharing:
    """Asks one or two questions for each job."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def why_shared(self, job: Job) -> str:
        """See the port."""
        shown = self._shown(nodesharing.job_arguments(job.job_id))
        if why := nodesharing.requeued(shown):
            return why
        if nodesharing.has_whole_nodes(shown):
            return ""
        return nodesharing.why_shared(shown, self._shown(nodesharing.node_arguments(job.node_list)))

    def _shown(self, argv: Sequence[str]) -> str:
        answer = self._commands.run(argv)
        if answer.status:
            raise ClusterUnavailable(f"{' '.join(argv)}: exit {answer.status}: {one_line(answer.said)}")
        return answer.out
