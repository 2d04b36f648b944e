"""An ``Actuator`` whose acts travel as orders to somebody who carries them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.orders import CancelJob, SignalJob, UpdateJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Act, Answer
    from mirage.domain.job import JobChange, JobId, JobRequest


class ByOrder:
    """An ``Actuator`` over ``ask``, which has an act done in its owner's name and brings the answer.

    ``ask`` raises ``NotPermitted`` where nothing has happened, ``ClusterUnavailable`` where something may have.
    """

    def __init__(self, ask: Callable[[str, Act], Answer]) -> None:
        self._ask = ask

    def submit(self, request: JobRequest) -> JobId:
        """Have it submitted in the name of ``request.user``."""
        return self._ask(request.user, request).job()

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Have it cancelled."""
        self._ask(owner, CancelJob(job_id)).job()

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Have it changed."""
        self._ask(owner, UpdateJob(job_id, change)).job()

    def signal(self, job_id: JobId, owner: str, signal: str, *, batch_only: bool) -> None:
        """Have it signalled."""
        self._ask(owner, SignalJob(job_id, signal, batch_only)).job()
