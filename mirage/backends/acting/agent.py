"""Acts through the users' own agents: no privilege at all, but a process of the user has to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.orders import Act, CancelJob, SignalJob, UpdateJob

if TYPE_CHECKING:
    from mirage.backends.acting.orders import OrderDesk
    from mirage.domain.job import JobChange, JobId, JobRequest


class AgentActuator:
    """An ``Actuator`` that leaves orders at a desk and waits for the answers.

    Besides what the port says, each method raises ``NotPermitted`` while no agent of the owner is there: nothing
    has happened then, and the next cycle may try again. ``ClusterUnavailable`` says that an agent took the order
    and was not heard of again: it may have happened.
    """

    def __init__(self, desk: OrderDesk) -> None:
        self._desk = desk

    def submit(self, request: JobRequest) -> JobId:
        """Have the agent of ``request.user`` submit it."""
        return self._ask(request.user, request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Have the agent of ``owner`` cancel it."""
        self._ask(owner, CancelJob(job_id))

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Have the agent of ``owner`` change it."""
        self._ask(owner, UpdateJob(job_id, change))

    def signal(self, job_id: JobId, owner: str, signal: str, *, batch_only: bool) -> None:
        """Have the agent of ``owner`` signal it."""
        self._ask(owner, SignalJob(job_id, signal, batch_only))

    def _ask(self, owner: str, act: Act) -> JobId:
        return self._desk.ask(owner, act).job()
