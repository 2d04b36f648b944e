"""Links that have left the queue, as ``sacct`` reports them: for a database that does not know them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.backends.cli import NO_ACCOUNTING, with_cancelled
from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.slurm import accounting
from mirage.slurm.configtext import read_settings
from mirage.slurm.rows import new_mark
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.backends.execution import Answer, Commands
    from mirage.domain.job import JobId, Seconds
    from mirage.domain.pastlinks import PastLinks


@dataclass(frozen=True, slots=True)
class CliLinkAccounting:
    """The port ``LinkAccounting`` by way of ``sacct``."""

    commands: Commands

    def keeps_comments(self) -> bool:
        """Whether ``AccountingStoreFlags`` has ``job_comment``. Raises ``ClusterUnavailable``."""
        answer = self.commands.run(["scontrol", "show", "config"])
        _check("scontrol show config", answer)
        return "job_comment" in read_settings(answer.out).get("accountingstoreflags", "").lower()

    def past_links(self, start: Seconds, end: Seconds, ids: Collection[JobId]) -> PastLinks | None:
        """One ``sacct``. Raises ``ClusterUnavailable``."""
        mark = new_mark()
        argv = ["sacct", *accounting.past_link_arguments(start, end)]
        answer = self.commands.run(argv, environment=self.commands.environment | accounting.settings(mark))
        if NO_ACCOUNTING in answer.err:
            return None
        _check("sacct", answer)
        try:
            found = accounting.read_past_links(answer.out, mark, ids)
        except BadSpelling as error:
            raise ClusterUnavailable(f"sacct: {error}") from error
        return replace(found, jobs=tuple(with_cancelled(self.commands, found.jobs)))


def _check(command: str, answer: Answer) -> None:
    if answer.status:
        raise ClusterUnavailable(f"{command}: exit {answer.status}: {one_line(answer.said)}")
