"""Entries of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.store.audit import AuditEntry


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
