"""For administrators: the audit log, the configuration, a test of notifications, and protected mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from mirage.api.access.dependencies import Admin, Reader
from mirage.api.conventions.documents import Described, SentDocument, instant
from mirage.api.conventions.threads import QueryRoute, ThreadRoute, run_in_thread
from mirage.api.routes.command_calls import CommandCaller
from mirage.api.routes.pages import Cursor, Limit, next_link, read_number, spell_cursor
from mirage.domain.chain import ChainId
from mirage.domain.command import LiftProtection
from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from mirage.api.port import ApiService
    from mirage.control.status import Status
    from mirage.store.access import AuditEntry


class SettingDocument(Described):
    """A configuration key with its value and source."""

    key: str
    """Key, such as ``loop.interval``."""
    value: Any
    """Value; durations are seconds, passwords in URLs are hidden."""
    source: str
    """File and line, environment variable, or ``default``."""


class ConfigurationDocument(Described):
    """All configuration keys, in the order of the reference."""

    settings: list[SettingDocument]
    """All keys."""


class AuditDocument(Described):
    """One action, or a denied attempt."""

    time: str | None
    """Time of the action."""
    user: str
    """User name."""
    uid: int | None
    """UID; ``null``: over the network."""
    how: str
    """Authentication: ``socket``, ``token ID``, ``jwt``, ``session``; empty: the decision loop acted."""
    action: str
    """The requested action."""
    chain: str | None
    """Chain ID; ``null``: not about a chain."""
    result: str
    """``done``, or the reason of the rejection."""


class AuditPage(Described):
    """A page of audit entries."""

    entries: list[AuditDocument]
    """Newest first."""
    next: str | None
    """``cursor`` of the next page; ``null`` on the last page."""


def audit_document(entry: AuditEntry) -> AuditDocument:
    """Return the document of one audit entry."""
    return AuditDocument(
        time=instant(entry.time),
        user=entry.user,
        uid=entry.uid if entry.uid >= 0 else None,
        how=entry.how,
        action=entry.action,
        chain=entry.chain,
        result=entry.result,
    )


class ProtectedMode(Described):
    """Protected mode: Mirage suspends all submissions after Slurm has rejected those of several chains."""

    on: bool
    """Whether protected mode is on."""
    reason: str
    """Reason; empty: off."""
    since: str | None
    """Time of the first of the consecutive rejections."""
    next_try: str | None
    """Time of the next trial submission."""


class ProtectedModeWish(SentDocument):
    """Request to end protected mode. It cannot be started by request, and also ends automatically."""

    on: Literal[False]
    """``false``: end protected mode."""


class ProtectedModeAnswer(Described):
    """Result of the request."""

    sentence: str
    """Result in words."""


def protected_mode(status: Status) -> ProtectedMode:
    """Return the state of protected mode."""
    found = status.protection
    if found is None:
        return ProtectedMode(on=False, reason="", since=None, next_try=None)
    return ProtectedMode(on=True, reason=str(found), since=instant(found.since), next_try=instant(found.next_try))


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


def configuration_routes(service: ApiService) -> APIRouter:
    """Return the route of the configuration."""
    routes = APIRouter(route_class=ThreadRoute, tags=["configuration"])

    @routes.get("/configuration", summary="Configuration in force")
    def show_configuration(caller: Admin) -> ConfigurationDocument:
        """List all keys with value and source. Secrets are in files, which are never shown."""
        del caller
        found = service.configuration()
        return ConfigurationDocument(
            settings=[SettingDocument(key=each.key, value=each.value, source=each.source) for each in found]
        )

    return routes


def audit_routes(service: ApiService) -> APIRouter:
    """Return the route of the audit log."""
    routes = APIRouter(route_class=QueryRoute, tags=["audit"])

    @routes.get("/audit", operation_id="list_audit")
    def list_audit(
        caller: Admin,
        request: Request,
        response: Response,
        chain: Annotated[str, Query(max_length=100, description="Chain ID; empty: all entries.")] = "",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> AuditPage:
        """List all changes with their author, and attempts to access others' chains, newest first."""
        del caller
        if service.audit is None:
            raise StoreUnavailable("this daemon has no audit log")
        before = None if cursor is None else read_number(cursor)
        lines = service.audit.read(ChainId(chain) if chain else None, before, limit + 1)
        further = spell_cursor(lines[limit - 1].cursor) if len(lines) > limit else None
        if further:
            response.headers["Link"] = next_link(request, further)
        shown: list[AuditDocument] = [audit_document(line.entry) for line in lines[:limit]]
        return AuditPage(entries=shown, next=further)

    return routes


def protection_routes(service: ApiService) -> APIRouter:
    """Return the routes about protected mode."""
    routes = APIRouter(prefix="/protected-mode", tags=["protected mode"])
    petitioner = CommandCaller(service)

    @routes.get("")
    async def show_protected_mode(caller: Reader) -> ProtectedMode:
        """Report whether protected mode is on, since when, and the time of the next trial submission."""
        del caller
        return protected_mode(service.status())

    @routes.post("")
    async def lift_protected_mode(caller: Admin, wish: ProtectedModeWish) -> ProtectedModeAnswer:
        """End protected mode: all chains may submit again immediately."""
        del wish
        return ProtectedModeAnswer(sentence=await petitioner.tell(LiftProtection(caller.name)))

    return routes
