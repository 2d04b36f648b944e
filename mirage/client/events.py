"""Parser of server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirage.client.documents import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def read_events(lines: Iterable[str], last: str = "") -> Iterator[Event]:
    """Parse by the rules of the HTML standard: an empty line ends an event, unknown fields are ignored.

    ``last`` is the id that holds until the stream names one.
    """
    kind, data = "", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Event(last, kind or "message", _document("\n".join(data)))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "id":
                last = value


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
