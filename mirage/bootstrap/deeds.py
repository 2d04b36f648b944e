"""The audit of what was done in users' names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.chainid import split_tag
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.store.audit import AuditEntry
from mirage.userdb import UIDS

if TYPE_CHECKING:
    from mirage.backends.acting.audit import Deed
    from mirage.domain.chain import ChainId
    from mirage.domain.job import JobId
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Clock
    from mirage.store.audit import AuditLog

_LOG = logging.getLogger(__name__)


class DeedLog:
    """Puts each act into the audit; one that cannot be written down is logged and has happened all the same."""

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._tags: dict[JobId, str] = {}
        """Of the links' jobs in the last snapshot."""

    def seen(self, snapshot: Snapshot) -> None:
        """Remember which job is whose: acts name jobs, and people look for chains."""
        jobs = (*snapshot.links.values(), *snapshot.rivals, *(snapshot.stock or ()))
        self._tags = {job.job_id: job.tag for job in jobs}

    def record(self, deed: Deed) -> None:
        """Write the action to the audit log, with its job and its result."""
        job = f" as job {deed.job_id}" if deed.job_id and str(deed.job_id) not in deed.act else ""
        act = f"{deed.act}{job}"
        try:
            self._audit.write(
                AuditEntry(self._clock.now(), deed.owner, _uid(deed.owner), act, self._chain(deed), deed.result)
            )
        except StoreUnavailable as error:
            text = "event=audit_entry_not_stored user=%s action=%r result=%r reason=%r"
            _LOG.warning(text, deed.owner, act, deed.result, str(error), extra={"always": True})

    def _chain(self, deed: Deed) -> ChainId | None:
        found = split_tag(deed.tag or self._tags.get(deed.job_id, ""))
        return found[0] if found else None


def _uid(name: str) -> int:
    """As far as it is known: the loop does not wait for it."""
    found = UIDS.last(name)
    return ABSENT if found is None else found
