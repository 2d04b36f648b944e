"""In which account and QOS our links run: what their successors get that name none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.snapshot import Snapshot

if TYPE_CHECKING:
    from mirage.domain.job import Job, JobId


class LinkAccounts:
    """Accounts read from the snapshots, once each and on demand; a link's account stays known while it exists."""

    def __init__(self) -> None:
        self._seen = Snapshot.unseen(0)
        self._known: dict[JobId, tuple[str, str]] = {}

    def of(self, snapshot: Snapshot, link: Job) -> tuple[str, str]:
        """Account and QOS; empty where they are not known."""
        if snapshot is not self._seen:
            self._seen, self._known = snapshot, self._read(snapshot)
        return self._known.get(link.job_id, ("", ""))

    def _read(self, snapshot: Snapshot) -> dict[JobId, tuple[str, str]]:
        ids = [link.job_id for link in snapshot.links.values()]
        running, labels = snapshot.running, snapshot.labels.of(ids)
        rows = np.flatnonzero(np.isin(running.job_id, ids))
        codes = dict(zip(running.job_id[rows].tolist(), running.qos[rows].tolist(), strict=True))
        found = {}
        for job_id in ids:
            account, qos = self._known.get(job_id, ("", ""))
            code = codes.get(job_id, -1)
            found[job_id] = (
                labels[job_id][1] if job_id in labels else account,
                snapshot.qos_names[code] if 0 <= code < len(snapshot.qos_names) else qos,
            )
        return found
