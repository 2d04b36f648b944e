"""The jobs of the past, also from before Mirage was there: asked of accounting in small bites."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.slurm import accounting, jobhistory
from mirage.slurm.rows import new_mark
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable

_log = logging.getLogger(__name__)


def past_jobs(commands: Commands, start: Seconds, end: Seconds) -> JobTable:
    """The jobs that ran or ended at any time in [start, end) on Slurm's clock, as they are known now.

    One ``sacct``: a caller that reads more than a day gives slurmdbd a pause between two days. Raises
    ``ClusterUnavailable`` when slurmdbd does not answer.
    """
    mark = new_mark()
    answer = commands.run(
        ["sacct", *jobhistory.history_arguments(start, end)],
        environment=commands.environment | accounting.settings(mark),
    )
    if answer.status:
        raise ClusterUnavailable(f"sacct: exit {answer.status}: {one_line(answer.said)}")
    try:
        found, left_out = jobhistory.read_history(answer.out, mark)
    except BadSpelling as fault:
        raise ClusterUnavailable(f"sacct: {fault}") from fault
    if left_out:
        _log.warning("event=jobs_left_out source=sacct jobs=%d start=%d end=%d", left_out, start, end)
    return found
