"""An ``Actuator`` that sends its actions as requests to another process, which runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.orders import CancelJob, SignalJob, UpdateJob, describe
from mirage.backends.acting.ownerturns import OwnerTurns, TurnLimits
from mirage.domain.errors import ClusterUnavailable, MirageError, SubmissionRejected, UnknownJob
from mirage.domain.link import NO_JOB

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Act, Answer
    from mirage.domain.job import JobChange, JobId, JobRequest, SignalReach


class ByOrder:
    """An ``Actuator`` over ``ask``, which has an act done in its owner's name and brings the answer.

    ``ask`` raises ``NotPermitted`` where nothing has happened, ``ClusterUnavailable`` where something may have. A
    process of the owner's stands behind it, and may hang: see ``OwnerTurns``.
    """

    def __init__(
        self,
        ask: Callable[[str, Act], Answer],
        withdraw: Callable[[str], bool] | None = None,
        behind: str = "",
        limits: TurnLimits | None = None,
    ) -> None:
        self._ask = OwnerTurns(ask, limits or TurnLimits(), withdraw=withdraw, behind=behind)

    def submit(self, request: JobRequest) -> JobId:
        """Have it submitted in the name of ``request.user``."""
        job_id = self._outcome(request.user, request, UnknownJob)
        if job_id == NO_JOB:
            raise ClusterUnavailable(f"{request.user}: the answer to {describe(request)} has no job ID")
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Request a cancellation on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, CancelJob(job_id), SubmissionRejected)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Request a change on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, UpdateJob(job_id, change), SubmissionRejected)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Request a signal on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, SignalJob(job_id, signal, reach), SubmissionRejected)

    def _outcome(self, owner: str, act: Act, unfit: type[MirageError]) -> JobId:
        """The ID of the job submitted; an answer that no such act can have leaves the outcome unknown."""
        try:
            return self._ask(owner, act).job()
        except unfit as error:
            raise ClusterUnavailable(f"{owner}: the answer to {describe(act)} does not fit: {error}") from None
