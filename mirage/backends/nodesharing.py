"""The port ``NodeSharing``: with ``scontrol show job`` and, if need be, ``show node``; or with slurmrestd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable
from mirage.slurm import nodesharing
from mirage.slurm.rest.sharing import why_shared
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.backends.execution import Commands
    from mirage.backends.rest import Rest
    from mirage.domain.job import Job


class CliNodeSharing:
    """The port ``NodeSharing`` by ``scontrol``: one or two queries for each job."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """Query the job, and its nodes where the job alone does not decide. See the port."""
        shown = self._shown(nodesharing.job_arguments(job.job_id))
        if why := nodesharing.requeued(shown):
            return why
        if nodesharing.has_whole_nodes(shown):
            return ""
        nodes = self._shown(nodesharing.node_arguments(job.node_list))
        return nodesharing.why_shared(shown, nodes, spreads=spreads)

    def _shown(self, argv: Sequence[str]) -> str:
        answer = self._commands.run(argv)
        if answer.status:
            raise ClusterUnavailable(f"{' '.join(argv)}: exit {answer.status}: {one_line(answer.said)}")
        return answer.out


class RestNodeSharing:
    """The port ``NodeSharing`` by slurmrestd: one query for each job."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """See the port; only whole nodes count, on which nothing can spread."""
        del spreads
        path = f"job/{job.job_id}"
        records = self._rest.records(path, "jobs")
        if len(records) != 1:
            self._rest.unavailable(f"GET {path}", f"{len(records)} jobs in the answer, expected one")
        return why_shared(records[0])
