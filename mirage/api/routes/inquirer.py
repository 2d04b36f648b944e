"""Prediction requests from the server's event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from mirage.api.conventions.problems import BadDocument, Busy
from mirage.control.questions import Question, TooManyQuestions
from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from mirage.api.port import ApiService, Inquiries
    from mirage.control.questions import Foresight
    from mirage.domain.job import JobRequest
    from mirage.domain.snapshot import Snapshot


def inquiries_of(service: ApiService) -> Inquiries:
    """Return the prediction service. Raises ``StoreUnavailable`` without one."""
    if service.inquiries is None:
        raise StoreUnavailable("this daemon takes no prediction requests")
    return service.inquiries


async def foreseen(service: ApiService, question: Question) -> Foresight:
    """Return the result. Raises ``Busy``, ``ClusterUnavailable`` and ``HTTPException`` (503: overload)."""
    try:
        promise = inquiries_of(service).ask(question)
        # Not cancelled: others may wait for the same result.
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(promise)), service.patience)
    except TooManyQuestions as error:  # immediately, or displaced by others
        raise HTTPException(503, str(error), {"Retry-After": "10"}) from None
    except TimeoutError:
        raise Busy(f"no answer from the decision loop for {service.patience:g} s; retry later") from None


def check_fits(request: JobRequest, snapshot: Snapshot) -> None:
    """Raise ``BadDocument`` for unknown partitions, or more nodes than any of them has."""
    sizes = {partition.name: partition.total for partition in snapshot.partitions}
    if not sizes:
        return
    named = request.partition.split(",") if request.partition else list(sizes)
    if (unknown := next((name for name in named if name not in sizes), None)) is not None:
        raise BadDocument(f"query.partition: there is no partition {unknown!r}; there are {', '.join(sizes)}")
    most = max(sizes[name] for name in named)
    if request.nodes > most:
        where = f"partition {request.partition}" if request.partition else "the largest partition"
        raise BadDocument(f"query.nodes: {where} has {most} nodes")
