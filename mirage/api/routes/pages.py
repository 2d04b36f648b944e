"""Paging of long lists with ``?limit=`` and ``?cursor=``, and the filters of chain lists."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Query

from mirage.api.conventions.problems import BadDocument
from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from mirage.domain.chain import ChainRecord

MOST = 1_000

Limit = Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items per page.")]
Cursor = Annotated[str | None, Query(max_length=400, description="Start of the page: `next` of the page before.")]


def spell_cursor(place: str | int) -> str:
    """Encode a position as an opaque cursor."""
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Decode a cursor. Raises ``BadDocument`` for an invalid one."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise BadDocument("query.cursor: invalid cursor; request the first page without a cursor") from None


def read_number(cursor: str) -> int:
    """Decode a numeric cursor. Raises ``BadDocument``."""
    place = read_cursor(cursor)
    if not place.isascii() or not place.isdigit() or len(place) > 18:
        raise BadDocument("query.cursor: invalid cursor; request the first page without a cursor")
    return int(place)


def next_link(request: Request, cursor: str) -> str:
    """Return the header ``Link`` to the next page."""
    url = request.url.include_query_params(cursor=cursor)
    target = f"{url.path}?{url.query}" if url.query else url.path
    return f'<{target}>; rel="next"'


@dataclass(frozen=True, slots=True)
class Selection:
    """Filter of chains; empty fields match all."""

    every: bool = False
    """Whether to include chains of all users."""
    user: str = ""
    partition: str = ""
    status: tuple[ChainStatus, ...] = ()
    live: bool = False
    """Only unfinished chains, and those with a job on the cluster."""

    def of(self, records: Sequence[ChainRecord], owner: str | None) -> list[ChainRecord]:
        """Return the matching chains of one owner, or (``None``) of all, in order."""
        return [record for record in records if owner in (None, record.chain.owner) and self._takes(record)]

    def _takes(self, record: ChainRecord) -> bool:
        return (
            (not self.user or record.chain.owner == self.user)
            and (not self.partition or record.chain.request.partition == self.partition)
            and (not self.status or record.status in self.status)
            and (not self.live or not record.over or bool(record.live))
        )


async def selection(
    every: Annotated[bool, Query(alias="all", description="Chains of all users, for administrators.")] = False,
    user: Annotated[str, Query(max_length=128, description="Chains of this user.")] = "",
    partition: Annotated[str, Query(max_length=128, description="Chains with this partition.")] = "",
    status: Annotated[
        list[ChainStatus] | None, Query(max_length=32, description="Chains with one of these statuses.")
    ] = None,
    live: Annotated[
        bool, Query(description="Only unfinished chains, and those with a job on the cluster.")
    ] = False,
) -> Selection:
    """Return the filter of a request. A coroutine, because a plain function would take a thread."""
    return Selection(every, user, partition, tuple(status or ()), live)


Wanted = Annotated[Selection, Depends(selection)]


@dataclass(frozen=True, slots=True)
class ChainListPage:
    """A page of a chain list."""

    records: list[ChainRecord]
    further: str | None
    """Cursor of the next page; ``None`` on the last page."""


def page_of(records: list[ChainRecord], limit: int, cursor: str | None) -> ChainListPage:
    """Return up to ``limit`` chains after the one that the cursor names. Raises ``BadDocument``."""
    first = 0 if cursor is None else _after(records, read_cursor(cursor))
    shown = records[first : first + limit]
    further = first + limit < len(records)
    return ChainListPage(shown, spell_cursor(shown[-1].chain.chain_id) if further else None)


def _after(records: list[ChainRecord], chain_id: str) -> int:
    for place, record in enumerate(records):
        if record.chain.chain_id == chain_id:
            return place + 1
    raise BadDocument(
        "query.cursor: invalid cursor, or its chain no longer exists; request the first page without a cursor"
    )
