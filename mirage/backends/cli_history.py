"""How long jobs have waited before Mirage was there: asked of accounting in small bites."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.slurm import accounting
from mirage.slurm.rows import new_mark
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.backends.execution import Commands
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable

_log = logging.getLogger(__name__)

WINDOW: Seconds = 86_400
PAUSE_S = 2.0


def seed_waits(
    commands: Commands,
    start: Seconds,
    end: Seconds,
    window: Seconds = WINDOW,
    pause: Callable[[], None] = lambda: time.sleep(PAUSE_S),
) -> Iterator[JobTable]:
    """The jobs that started in [start, end) on Slurm's clock, one table a window, the latest window first.

    The latest matter most: whoever stops early has them. Each table has id, user, partition, nodes, limit, submit
    and start; tables may be empty. One ``sacct`` a window and a ``pause`` between them, so that slurmdbd has room
    for others. Raises ``ClusterUnavailable`` when a question is not answered; the windows before it stand.
    """
    until = end
    while until > start:
        since = max(start, until - window)
        yield _started(commands, since, until)
        until = since
        if until > start:
            pause()


def _started(commands: Commands, since: Seconds, until: Seconds) -> JobTable:
    mark = new_mark()
    answer = commands.run(
        ["sacct", *accounting.waits_arguments(mark, since, until)],
        environment=commands.environment | accounting.SETTINGS,
    )
    if answer.status:
        raise ClusterUnavailable(f"sacct: exit {answer.status}: {one_line(answer.said)}")
    try:
        found, left_out = accounting.read_waits(answer.out, mark, since, until)
    except BadSpelling as fault:
        raise ClusterUnavailable(f"sacct: {fault}") from fault
    if left_out:
        _log.warning("sacct: %d jobs between %d and %d are not understood and left out", left_out, since, until)
    return found
