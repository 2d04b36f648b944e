"""Questions to the predictors, from the server's event loop."""

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
    """Raises ``StoreUnavailable`` where predictors cannot be asked."""
    if service.inquiries is None:
        raise StoreUnavailable("this daemon takes no questions to its predictors")
    return service.inquiries


async def foreseen(service: ApiService, question: Question) -> Foresight:
    """The loop's answer. Raises ``Busy``, ``ClusterUnavailable``, and ``HTTPException`` (503: too many ask)."""
    try:
        promise = inquiries_of(service).ask(question)
        # Others may wait for the same answer: it is not for us to cancel.
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(promise)), service.patience)
    except TooManyQuestions as error:  # at once, or where others take its place
        raise HTTPException(503, str(error), {"Retry-After": "10"}) from None
    except TimeoutError:
        raise Busy(f"the loop has not answered for {service.patience:g} s; ask again later") from None


def check_fits(request: JobRequest, snapshot: Snapshot) -> None:
    """Raises ``BadDocument`` for partitions of which one is not there, or none has so many nodes."""
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
