"""``/audit`` and ``/configuration``: for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from mirage.api.documents.audit import AuditPage
from mirage.api.documents.configuration import ConfigurationDocument, SettingDocument
from mirage.api.documents.me import MeDocument
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.rendering import render


async def show_audit(
    request: Request,
    chain: Annotated[str, Query(max_length=100)] = "",
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """Show the audit log, newest first."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/audit", AuditPage, chain=chain or None, cursor=cursor)
    return await render(request, "audit.html.j2", me, found=found, chain=chain, first=cursor is None)


async def show_configuration(request: Request) -> Response:
    """Show all keys with value and source, one table per section."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/configuration", ConfigurationDocument)
    sections: dict[str, list[SettingDocument]] = {}
    for each in found.settings:
        sections.setdefault(each.key.rpartition(".")[0], []).append(each)
    return await render(request, "configuration.html.j2", me, sections=sections)
