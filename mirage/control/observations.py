"""What a predictor gets to see of one handover, and in which account and QOS our links run.

The latter is what their successors get that name none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.control.startplans import StartPlans
from mirage.domain.decision import NO_PLAN, Observation, RecentWaits, Standing, Wants
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.snapshot import Snapshot
from mirage.features.summary import QueueWindows
from mirage.features.waitclass import gres_of

if TYPE_CHECKING:
    from mirage.control.startplans import PlanBudget
    from mirage.domain.decision import PlannedStart
    from mirage.domain.job import Job, JobId, JobRequest
    from mirage.ports import JobHistory, OwnerLimitSource, StartEstimator, WaitHistory


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


_NO_WAITS = RecentWaits.none()
_NO_STANDING = Standing()


@dataclass(frozen=True, slots=True)
class ObservationBuilder:
    """Builds observations; queries only the required inputs."""

    waits: WaitHistory
    estimator: StartEstimator
    history: JobHistory | None = None
    standings: OwnerLimitSource | None = None
    windows: QueueWindows = field(default_factory=QueueWindows)
    budget: PlanBudget | None = None
    """Query budget for Slurm's planned starts; ``None``: query at each observation that requires one."""
    _plans: StartPlans = field(init=False)
    _accounts: LinkAccounts = field(init=False, default_factory=LinkAccounts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plans", StartPlans(self.estimator, self.budget))

    def seen(self, snapshot: Snapshot, wants: Wants) -> None:
        """Take note of a cycle's snapshot."""
        self._plans.next_cycle(snapshot.time)
        if wants.window:
            self.windows.add(snapshot)

    def observe(
        self, snapshot: Snapshot, predecessor: Job | None, successor: JobRequest, wants: Wants
    ) -> Observation:
        """One handover, as it stands in ``snapshot``; the successor has the partition that it will run in."""
        partition = successor.partition or self._default_partition(snapshot, predecessor)
        where = replace(successor, partition=partition)
        return Observation(
            time=snapshot.time,
            snapshot=snapshot,
            predecessor=predecessor,
            successor=where,
            waits=self._waits(snapshot, predecessor, where, wants.waits),
            planned_start=self._planned_start(snapshot, predecessor, successor) if wants.plan else NO_PLAN,
            window=self.windows.of(partition) if wants.window else None,
            history=self.history.jobs(wants.history) if wants.history and self.history else None,
            standing=self._standing(where) if wants.standing else _NO_STANDING,
        )

    def _default_partition(self, snapshot: Snapshot, predecessor: Job | None) -> str:
        """Where a job goes that names no partition: there its predecessor runs; empty: that is not known."""
        if predecessor is not None and predecessor.partition:
            return predecessor.partition
        if len(snapshot.partitions) == 1:
            return snapshot.partitions[0].name
        return self.standings.default_partition() if self.standings is not None else ""

    def _waits(self, snapshot: Snapshot, before: Job | None, request: JobRequest, count: int) -> RecentWaits:
        """None where it is not known which of several partitions it would be: one never speaks for another."""
        if not count or (not request.partition and len(snapshot.partitions) > 1):
            return _NO_WAITS
        account, qos = self._accounts.of(snapshot, before) if before is not None else ("", "")
        gres, _ = gres_of(request) or ("", 0)
        found = self.waits.recent_waits(count, request.partition, gres, request.qos or qos)
        return replace(found, usual_account=account, usual_qos=qos)

    def _planned_start(self, snapshot: Snapshot, before: Job | None, request: JobRequest) -> PlannedStart:
        return self._plans.of(request, snapshot.time, queued=before is not None)

    def _standing(self, request: JobRequest) -> Standing:
        if self.standings is None:
            return _NO_STANDING
        try:
            return self.standings.standing(request)
        except ClusterUnavailable:
            return _NO_STANDING
