"""Carries out an order: what a user's agent and the sudo helper have in common."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirage.backends.acting.orders import Answer, CancelJob, SignalJob, UpdateJob, Verdict
from mirage.domain.chain import NO_JOB
from mirage.domain.errors import MirageError
from mirage.domain.job import JobId, JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Order
    from mirage.ports import Actuator


def execute(order: Order, actuator: Actuator, now: Callable[[], float] = time.time) -> Answer:
    """Do what ``order`` says, with an actuator that may act for its owner, unless it is too late for it.

    Errors become answers; one that is no ``MirageError`` is a fault of this program and is raised.
    """
    late = now() - order.start_by
    if late > 0:
        return Answer(Verdict.TOO_LATE, text=f"the order to {order.sentence} came {late:.0f} s too late")
    try:
        return Answer(Verdict.DONE, _carry_out(order, actuator))
    except MirageError as error:
        return Answer.failed(error)


def _carry_out(order: Order, actuator: Actuator) -> JobId:
    owner = order.owner
    match order.act:
        case JobRequest() as request:
            return actuator.submit(request)
        case CancelJob(job_id):
            actuator.cancel(job_id, owner)
        case UpdateJob(job_id, change):
            actuator.update(job_id, owner, change)
        case SignalJob(job_id, signal, batch_only):
            actuator.signal(job_id, owner, signal, batch_only=batch_only)
    return NO_JOB
