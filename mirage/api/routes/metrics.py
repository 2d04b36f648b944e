"""``/metrics``: metrics for Prometheus."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response

from mirage.api.access.dependencies import caller_of
from mirage.api.access.peer import peer_of
from mirage.api.conventions.threads import ThreadRoute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirage.api.port import ApiService

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
