"""``/api/v1/notifications``: test of the notification channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Admin
from mirage.api.conventions.described import Described
from mirage.api.conventions.threads import run_in_thread

if TYPE_CHECKING:
    from mirage.api.port import ApiService


class ChannelResult(Described):
    """Result of a test message."""

    channel: str
    """Channel name in the configuration."""
    result: str
    """``sent``, or the error."""


class TestedChannels(Described):
    """Results of all configured channels."""

    channels: list[ChannelResult]
    """One result per channel."""


def notification_routes(service: ApiService) -> APIRouter:
    """Return the routes about notifications."""
    routes = APIRouter(prefix="/notifications", tags=["notifications"])

    @routes.post("/test")
    async def test_notifications(caller: Admin) -> TestedChannels:
        """Send a test message through each channel; responds once all have been tried."""
        found = await run_in_thread(caller.name, service.telemetry.test, caller.name)
        return TestedChannels(channels=[ChannelResult(channel=name, result=told) for name, told in found.items()])

    return routes
