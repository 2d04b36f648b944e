"""``/healthz``, ``/readyz``, ``/version``: what supervisors and load balancers ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request, Response

from mirage import __version__
from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import caller_of
from mirage.api.conventions.described import Described
from mirage.api.conventions.threads import SharedCheck
from mirage.api.documents.visible import Visible
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.api.port import ApiService


class Health(Described):
    """That the process answers."""

    status: str
    """ok."""
    cycles: int
    """Since it began."""
    leads: bool
    """Whether it is the daemon that acts, where several share one database."""
    sentence: str | None
    """What the last cycle did about one's own chains (administrators: about all); ``null`` for those who do not
    say who they are."""


class Readiness(Described):
    """Whether chains are kept alive as they should be."""

    ready: bool
    """All of them do."""
    checks: dict[str, bool]
    """Each part of the daemon, and whether it works."""
    troubles: dict[str, str] | None
    """What is wrong; ``null`` for those who do not say who they are."""


class Version(Described):
    """Which Mirage this is."""

    version: str
    """Of the daemon."""


async def _somebody(request: Request) -> Caller | None:
    """Who asks, where they say so: these addresses answer anybody."""
    try:
        caller = await caller_of(request)
    except MirageError:
        return None
    return caller if caller.is_known else None


Somebody = Annotated[Caller | None, Depends(_somebody)]


def about_routes(service: ApiService) -> APIRouter:
    """The addresses about the daemon itself."""
    routes = APIRouter(tags=["about"])
    checked = SharedCheck(service.readiness)

    @routes.get("/healthz", operation_id="health")
    async def health(caller: Somebody) -> Health:
        """That the process answers, and what its last cycle did."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin) if caller else None
        sentence, leads = seen.sentence if seen else None, not service.impediment()
        return Health(status="ok", cycles=status.cycles, leads=leads, sentence=sentence)

    @routes.get("/readyz", operation_id="readiness", responses={503: {"model": Readiness}})
    async def readiness(caller: Somebody, response: Response) -> Readiness:
        """Whether it leads, sees the cluster and can write its store; 503 where it does not."""
        found = await checked.get()
        troubles = {name: trouble for name, trouble in found.items() if trouble}
        response.status_code = 503 if troubles else 200
        checks = {name: not trouble for name, trouble in found.items()}
        return Readiness(ready=not troubles, checks=checks, troubles=troubles if caller else None)

    @routes.get("/version", operation_id="version")
    async def version() -> Version:
        """Which Mirage this is."""
        return Version(version=__version__)

    return routes
