"""Lines of the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.store.audit import AuditEntry


class AuditDocument(Described):
    """One act, or one attempt."""

    time: str | None
    """When."""
    user: str
    """Who."""
    uid: int | None
    """``null``: came over the network."""
    how: str
    """How they proved who they are: ``socket``, ``token ID``, ``jwt``, ``session``; empty: the loop acted."""
    action: str
    """What was asked for, in a few words."""
    chain: str | None
    """The chain that it was about; empty: none."""
    result: str
    """``done``, or why not."""


class AuditPage(Described):
    """Lines, newest first."""

    entries: list[AuditDocument]
    """Newest first."""
    next: str | None
    """The next page's cursor; ``null``: this is the last."""


def audit_document(entry: AuditEntry) -> AuditDocument:
    """One line."""
    return AuditDocument(
        time=instant(entry.time),
        user=entry.user,
        uid=entry.uid if entry.uid >= 0 else None,
        how=entry.how,
        action=entry.action,
        chain=entry.chain,
        result=entry.result,
    )
