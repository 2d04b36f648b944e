"""Paging of long lists with ``?limit=`` and ``?cursor=``."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from mirage.api.conventions.problems import BadDocument

if TYPE_CHECKING:
    from starlette.requests import Request

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
