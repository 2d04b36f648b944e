"""Line numbers of tables and keys in a task file, which TOML readers do not keep."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TABLE = "task"
DEFAULTS = "defaults"

_HEADER = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?")
_KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*[.=]")
_QUOTES = ('"""', "'''")


@dataclass(slots=True)
class Place:
    """One table of the file."""

    line: int
    """Of its header, from 1."""
    keys: dict[str, int] = field(default_factory=dict)

    def of(self, key: str) -> int:
        """The line of a key; that of the header where it is not given there."""
        return self.keys.get(key, self.line)


@dataclass(frozen=True, slots=True)
class Places:
    """The tables of a file."""

    tasks: list[Place]
    defaults: Place


def find_places(text: str) -> Places:
    """Headers and keys by line; skips text within ``\"\"\"``."""
    places = Places([], Place(1))
    current, nested, quote = Place(1), "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if line.count(quote) % 2 else quote
            continue
        header = _HEADER.match(line)
        if header:
            name, _, nested = header[1].partition(".")
            current = _entered(places, name, nested, number, current)
        elif found := _KEY.match(line):
            current.keys.setdefault(nested or found[1], number)
        quote = next((mark for mark in _QUOTES if line.count(mark) % 2), "")
    return places


def _entered(places: Places, name: str, nested: str, number: int, current: Place) -> Place:
    if nested:
        current.keys.setdefault(nested, number)
        return current
    if name == TABLE:
        places.tasks.append(Place(number))
        return places.tasks[-1]
    if name == DEFAULTS:
        places.defaults.line = number
        return places.defaults
    return Place(number)
