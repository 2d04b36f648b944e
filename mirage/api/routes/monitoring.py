"""``/healthz``, ``/readyz``, ``/version``, ``/metrics``: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response

from mirage import __version__
from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import caller_of
from mirage.api.access.protocol import peer_of
from mirage.api.access.visibility import Visible
from mirage.api.conventions.documents import Described
from mirage.api.conventions.threads import SharedCheck, ThreadRoute
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


class DaemonVersion(Described):
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
    async def version() -> DaemonVersion:
        """Return the version of Mirage."""
        return DaemonVersion(version=__version__)

    return routes


_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def metrics_routes(service: ApiService) -> APIRouter:
    """Return the route of the metrics; not in the API description, since its format is Prometheus's."""
    routes = APIRouter(route_class=ThreadRoute, include_in_schema=False)

    @routes.get("/metrics", dependencies=[Depends(_scraper(service))])
    def metrics(request: Request) -> Response:
        body, content_type = service.telemetry.expose(request.headers.get("accept", ""))
        # Set as a header: FastAPI would add another charset.
        return Response(body, headers={"Content-Type": content_type})

    return routes


def _scraper(service: ApiService) -> Callable[[Request], Awaitable[None]]:
    """Any caller with access may scrape; callers without credentials as configured."""

    async def permitted(request: Request) -> None:
        if service.telemetry.scrapers == "anybody" or (
            service.telemetry.scrapers == "loopback" and _is_local(request)
        ):
            return
        await caller_of(request)

    return permitted


def _is_local(request: Request) -> bool:
    """Whether the request is from this machine, and not from a proxy here."""
    if peer_of(request) is not None or request.client is None:
        return False
    if any(name in request.headers for name in _PASSED_ON):
        return False
    return _is_loopback(request.client.host) and _names_loopback(request)


def _names_loopback(request: Request) -> bool:
    """Whether ``Host`` names the loopback: never so for a foreign page whose name resolves to it."""
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return name.rstrip(".") == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
