"""``/api/v1/notifications``: whether messages to people arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Admin
from mirage.api.conventions.described import Described
from mirage.api.conventions.threads import run_in_thread

if TYPE_CHECKING:
    from mirage.api.port import ApiService


class ChannelResult(Described):
    """What came of a test message."""

    channel: str
    """Its name in the configuration."""
    result: str
    """``sent``, or why not."""


class TestedChannels(Described):
    """Every channel that is configured."""

    channels: list[ChannelResult]
    """Every one that is configured."""


def notification_routes(service: ApiService) -> APIRouter:
    """The addresses about messages."""
    routes = APIRouter(prefix="/notifications", tags=["notifications"])

    @routes.post("/test")
    async def test_notifications(caller: Admin) -> TestedChannels:
        """Send a test message by each channel now; answered once all have been tried."""
        found = await run_in_thread(caller.name, service.telemetry.test, caller.name)
        return TestedChannels(channels=[ChannelResult(channel=name, result=told) for name, told in found.items()])

    return routes
