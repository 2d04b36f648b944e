"""Periodic chores in separate threads; they decide nothing about chains."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    """A task that runs periodically while the daemon runs."""

    name: str
    every: float
    """Real seconds from one beginning to the next."""
    first: float
    """Real seconds until the first."""
    work: Callable[[], str]
    """Says what it did; empty: nothing worth a word."""


class Housekeeping:
    """Runs chores until closed; a failure is logged and the chore runs again at its next time."""

    def __init__(self, chores: tuple[Chore, ...]) -> None:
        from apscheduler.schedulers.background import BackgroundScheduler

        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1})
        for chore in chores:
            self._scheduler.add_job(
                _do,
                "interval",
                (chore,),
                seconds=chore.every,
                next_run_time=datetime.now(UTC) + timedelta(seconds=chore.first),
                misfire_grace_time=None,
            )
        self._scheduler.start()

    def close(self) -> None:
        """Start no further chore; do not wait for a running one."""
        self._scheduler.shutdown(wait=False)


def _do(chore: Chore) -> None:
    try:
        said = chore.work()
    except MirageError as error:
        _LOG.warning("event=chore_failed chore=%s error=%r", chore.name, str(error))
    except Exception:
        _LOG.exception("event=internal_error chore=%s text=%r", chore.name, "bug in Mirage; report the traceback")
    else:
        if said:
            _LOG.info("event=chore_done chore=%s text=%r", chore.name, said)
