"""What an error about a TOML text names: the line of a key, and the nearest valid name.

``tomllib`` gives values without positions. This scan keeps the line of every table header and of every key
outside multi-line values; a key inside a multi-line value is found at the line where that value begins.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MOST_COMPARED = 5000


def did_you_mean(given: str, valid: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the valid name nearest to ``given``, "" where none is near.

    Case, underscores and dashes do not count, so that Slurm's ``MaxTime`` finds ``max_time``.
    """
    plain: dict[str, str] = {}
    for name in valid:
        plain.setdefault(_plain(name), name)
        if len(plain) >= _MOST_COMPARED:
            break
    near = get_close_matches(_plain(given), plain, n=1, cutoff=0.7)
    return f"; did you mean {plain[near[0]]}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


Path = tuple[str | int, ...]
"""Keys and array indices from the top, such as ``("partitions", 0, "nodes")``."""

_HEADER = re.compile(r"\s*+(\[\[?)([^\[\]]+)\]\]?\s*+(?:#.*)?$")
_KEY = re.compile(
    r"""\s*+((?:[A-Za-z0-9_-]++|"[^"]*+"|'[^']*+')(?:\s*+\.\s*+(?:[A-Za-z0-9_-]++|"[^"]*+"|'[^']*+'))*+)\s*+="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\[\]{}]|\n''', re.DOTALL
)


def line_of(text: str, path: Path) -> int:
    """The 1-based line of the longest leading part of ``path`` that the text has; 0 where it has none."""
    return line_finder(text)(path)


def line_finder(text: str) -> Callable[[Path], int]:
    """``line_of`` for many paths of one text, which is read once."""
    places = _places(text)

    def find(path: Path) -> int:
        return next((places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places), 0)

    return find


def _places(text: str) -> dict[Path, int]:
    places: dict[Path, int] = {}
    counts: Counter[Path] = Counter()
    table: Path = ()
    inside = _lines_inside_values(text)
    for number, line in enumerate(text.split("\n"), start=1):
        if number in inside:
            continue
        if header := _HEADER.match(line):
            table = _names(header[2])
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            places.setdefault(table, number)
        elif key := _KEY.match(line):
            places.setdefault((*table, *_names(key[1])), number)
    return places


def _names(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _lines_inside_values(text: str) -> set[int]:
    """Lines that begin inside a multi-line string, array or inline table."""
    inside: set[int] = set()
    depth, line = 0, 1
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if symbol == "\n":
            line += 1
            if depth > 0:
                inside.add(line)
        elif symbol in "[{":
            depth += 1
        elif symbol in "]}":
            depth -= 1
        else:
            newlines = symbol.count("\n")
            inside.update(range(line + 1, line + newlines + 1))
            line += newlines
    return inside
