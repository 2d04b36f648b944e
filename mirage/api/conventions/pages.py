"""Long lists come in pages: ``?limit=`` and ``?cursor=``, and where the next one begins."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from mirage.api.conventions.problems import BadDocument

if TYPE_CHECKING:
    from starlette.requests import Request

MOST = 1_000

Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
Cursor = Annotated[
    str | None, Query(max_length=400, description="Where to continue: what `next` of the page before says.")
]


def spell_cursor(place: str | int) -> str:
    """A place as a client hands it back; it is none of the client's business what it says."""
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """The place. Raises ``BadDocument`` for what is no cursor."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise BadDocument("query.cursor: no cursor of this list; begin without one") from None


def read_number(cursor: str) -> int:
    """A place that is a number. Raises ``BadDocument``."""
    place = read_cursor(cursor)
    if not place.isascii() or not place.isdigit() or len(place) > 18:
        raise BadDocument("query.cursor: no cursor of this list; begin without one")
    return int(place)


def next_link(request: Request, cursor: str) -> str:
    """The header ``Link`` of a page that is not the last."""
    url = request.url.include_query_params(cursor=cursor)
    target = f"{url.path}?{url.query}" if url.query else url.path
    return f'<{target}>; rel="next"'
