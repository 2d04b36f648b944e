"""What a predictor gets to see of one hand-over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.decision import Observation, RecentWaits, Standing, Wants
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT
from mirage.features.window import QueueWindows

if TYPE_CHECKING:
    from mirage.domain.job import Job, JobRequest, Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import JobHistory, Standings, StartEstimator, WaitHistory

_NO_WAITS = RecentWaits.none()
_NO_STANDING = Standing()


@dataclass(frozen=True, slots=True)
class Observer:
    """Puts observations together; asks only for what is wanted."""

    waits: WaitHistory
    estimator: StartEstimator
    history: JobHistory | None = None
    standings: Standings | None = None
    windows: QueueWindows = field(default_factory=QueueWindows)

    def seen(self, snapshot: Snapshot, wants: Wants) -> None:
        """Take note of a cycle's snapshot."""
        if wants.window:
            self.windows.add(snapshot)

    def observe(
        self, snapshot: Snapshot, predecessor: Job | None, successor: JobRequest, wants: Wants
    ) -> Observation:
        """One hand-over, as it stands in ``snapshot``."""
        return Observation(
            time=snapshot.time,
            snapshot=snapshot,
            predecessor=predecessor,
            successor=successor,
            waits=self.waits.recent_waits(wants.waits) if wants.waits else _NO_WAITS,
            planned_start=self._planned_start(successor) if wants.plan else ABSENT,
            window=self.windows.of(successor.partition) if wants.window else None,
            history=self.history.jobs(wants.history) if wants.history and self.history else None,
            standing=self._standing(successor) if wants.standing else _NO_STANDING,
        )

    def _planned_start(self, request: JobRequest) -> Seconds:
        try:
            return self.estimator.estimate_start(request)
        except (ClusterUnavailable, NotPermitted, SubmissionRejected):
            return ABSENT

    def _standing(self, request: JobRequest) -> Standing:
        if self.standings is None:
            return _NO_STANDING
        try:
            return self.standings.standing(request)
        except ClusterUnavailable:
            return _NO_STANDING
