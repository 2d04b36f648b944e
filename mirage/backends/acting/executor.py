"""Executes an order: what a user's agent and the sudo helper have in common."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from mirage.backends.acting.orders import Answer, CancelJob, CheckFiles, SignalJob, UpdateJob, Verdict
from mirage.domain.errors import MirageError, NotPermitted
from mirage.domain.job import JobRequest
from mirage.ports import Actuator

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Act, Order
    from mirage.domain.files import FileState


class UserSide(Actuator, Protocol):
    """Actions that a process of the user performs on request."""

    def check_files(self, paths: tuple[str, ...], owner: str) -> tuple[FileState, ...]:
        """The states of these files, in order. Raises ``NotPermitted``."""


def execute(order: Order, actuator: UserSide, now: Callable[[], float] = time.time) -> Answer:
    """Do what ``order`` says, with an actuator that may act for its owner, unless it is too late for it.

    Errors become answers; an error that is no ``MirageError`` is a bug and is raised.
    """
    late = now() - order.start_by
    if late > 0:
        return Answer(Verdict.TOO_LATE, text=f"the order to {order.sentence} came {late:.0f} s too late")
    try:
        return _carry_out(order, actuator)
    except MirageError as error:
        return Answer.failed(error)


def carry_out(act: Act, owner: str, actuator: Actuator) -> Answer:
    """Do what ``act`` says to jobs of ``owner``. Raises what ``actuator`` raises."""
    match act:
        case JobRequest() as request:
            return Answer(Verdict.DONE, actuator.submit(request))
        case CancelJob(job_id):
            actuator.cancel(job_id, owner)
        case UpdateJob(job_id, change):
            actuator.update(job_id, owner, change)
        case SignalJob(job_id, signal, reach):
            actuator.signal(job_id, owner, signal, reach=reach)
        case CheckFiles():
            raise NotPermitted(f"{owner}: files are not checked by acts on jobs")
    return Answer(Verdict.DONE)


def _carry_out(order: Order, actuator: UserSide) -> Answer:
    match order.act:
        case CheckFiles(paths):
            return Answer(Verdict.DONE, files=actuator.check_files(paths, order.owner))
        case act:
            return carry_out(act, order.owner, actuator)
