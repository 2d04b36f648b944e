"""``/healthz``, ``/readyz``, ``/version``: for supervisors and load balancers."""

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
    """Liveness of the daemon."""

    status: str
    """Always ``ok``."""
    cycles: int
    """Cycles completed since the daemon started."""
    leads: bool
    """Whether this daemon is the leader, if several share one database."""
    sentence: str | None
    """Result of the last cycle for the caller's chains (administrators: for all); ``null`` without credentials."""


class Readiness(Described):
    """Readiness of the daemon to keep chains running."""

    ready: bool
    """Whether all checks pass."""
    checks: dict[str, bool]
    """Result of each check."""
    troubles: dict[str, str] | None
    """Reasons of the failed checks; ``null`` without credentials."""


class Version(Described):
    """Version of the running daemon."""

    version: str
    """Version number."""


async def _somebody(request: Request) -> Caller | None:
    """Return the caller; ``None`` without credentials, which these endpoints do not require."""
    try:
        caller = await caller_of(request)
    except MirageError:
        return None
    return caller if caller.is_known else None


Somebody = Annotated[Caller | None, Depends(_somebody)]


def about_routes(service: ApiService) -> APIRouter:
    """Return the routes about the daemon."""
    routes = APIRouter(tags=["about"])
    checked = SharedCheck(service.readiness)

    @routes.get("/healthz", operation_id="health")
    async def health(caller: Somebody) -> Health:
        """Report that the daemon answers, and the result of its last cycle."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin) if caller else None
        sentence, leads = seen.sentence if seen else None, not service.impediment()
        return Health(status="ok", cycles=status.cycles, leads=leads, sentence=sentence)

    @routes.get("/readyz", operation_id="readiness", responses={503: {"model": Readiness}})
    async def readiness(caller: Somebody, response: Response) -> Readiness:
        """Report whether the daemon leads, reads the cluster and can write its database; otherwise 503."""
        found = await checked.get()
        troubles = {name: trouble for name, trouble in found.items() if trouble}
        response.status_code = 503 if troubles else 200
        checks = {name: not trouble for name, trouble in found.items()}
        return Readiness(ready=not troubles, checks=checks, troubles=troubles if caller else None)

    @routes.get("/version", operation_id="version")
    async def version() -> Version:
        """Return the version of Mirage."""
        return Version(version=__version__)

    return routes
