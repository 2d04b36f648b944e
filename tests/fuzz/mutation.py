"""Input that is nearly right: what a reader takes; cut, doubled, spliced, overwritten with what is stumbled on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

MOST_EDITS = 4
LONGEST = 1 << 16
"""Bytes or letters: enough for every kind of malformed input, and each example takes little time to make."""

WORDS = (
    *("", "0", "-1", "-0", "1e309", "NaN", "inf", "1_0", "0x1", "٣", "²", "9" * 30, "9" * 5_000, "1.5", "+7"),
    *("\0", "\n", "\r\n", "\x1e", "\x1f", "\x0b", "\ufeff", "\u2028", "é", "\U0001f600", " ", "\t", ",", ";", ":"),
    *(
        "=",
        "|",
        "-",
        "/",
        "\\",
        '"',
        "'",
        "#",
        "%",
        "%s",
        "{}",
        "..",
        "[",
        "]",
        "[[[[",
        "{",
        "}",
        "(",
        "((((((",
        "*",
    ),
    *(
        "None",
        "null",
        "true",
        "Unknown",
        "UNLIMITED",
        "N/A",
        "1-",
        "[1-999999999999]",
        "[9-1]",
        "1970-01-01T00:00:00",
    ),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59", "2023-02-30", "[" * 3_000, "{" * 3_000, '{"a":' * 3_000),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        2**64,
        -(2**63),
        10**40,
        0.5,
        -0.0,
        1e308,
        float("inf"),
        float("nan"),
    ),
    *(
        "",
        "0",
        "\0",
        "é",
        "\ud800",
        "9" * 5_000,
        "../..",
        [],
        {},
        [[]],
        [None],
        {"": None},
        [0] * 100,
        "1970-01-01",
    ),
)
_BYTES = (*(word.encode("utf-8", "surrogatepass") for word in WORDS), b"\xff", b"\xc3", b"\0" * 8, b"\xff" * 8)
_DEEP = 400
"""What ``json`` still reads; deeper ones are among the words."""


def changed_text(chance: Random, corpus: Sequence[str], words: Sequence[str] = ()) -> str:
    """One of ``corpus`` with a few edits; ``words``: what else to write into it."""
    return _edited(chance, chance.choice(corpus), (*WORDS, *words), lambda: chr(chance.randrange(0x110000)))


def changed_bytes(chance: Random, corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """The same mutations for bytes."""
    return _edited(chance, chance.choice(corpus), (*_BYTES, *words), lambda: bytes((chance.randrange(256),)))


def changed_document(chance: Random, corpus: Sequence[Any]) -> Any:
    """A parsed document with a few of its values changed, left out, doubled or nested deeply."""
    return _altered(chance, copy.deepcopy(chance.choice(corpus)))


def _edited(chance: Random, whole: Any, words: Sequence[Any], letter: Callable[[], Any]) -> Any:
    for _ in range(chance.randint(1, MOST_EDITS)):
        start = chance.randint(0, len(whole))
        end = min(len(whole), start + chance.choice((0, 1, 1, 2, 4, 16, 64, len(whole))))
        match chance.randrange(6):
            case 0:
                put = whole[:0]
            case 1:
                put = letter()
            case 2:
                put = whole[start:end] * chance.choice((2, 2, 3, 50))
            case 3:
                there = chance.randint(0, len(whole))
                put = whole[there : there + chance.choice((1, 4, 16, 200))]
            case _:
                put = chance.choice(words)
        whole = (whole[:start] + put + whole[end:])[:LONGEST]
    return whole


def _altered(chance: Random, document: Any) -> Any:
    for _ in range(chance.randint(1, MOST_EDITS)):
        places = list(_places(document))
        if not places:
            return copy.deepcopy(chance.choice(VALUES))
        parent, key = chance.choice(places)
        match chance.randrange(8):
            case 0:
                del parent[key]
            case 1:
                other, other_key = chance.choice(places)
                parent[key] = copy.deepcopy(other[other_key])
            case 2 if isinstance(parent, dict):
                parent[chance.choice(WORDS)] = parent.pop(key)
            case 3 if isinstance(parent[key], str):
                parent[key] = _edited(chance, parent[key], WORDS, lambda: chr(chance.randrange(0x110000)))
            case 4 if chance.random() < 0.1:
                parent[key] = _nested(_DEEP)
            case _:
                parent[key] = copy.deepcopy(chance.choice(VALUES))
    return document


def _places(document: Any) -> Any:
    """Every value inside, as the container that has it and its key there."""
    stack = [document]
    while stack:
        inner = stack.pop()
        if not isinstance(inner, dict | list):
            continue
        for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
            yield inner, key
            stack.append(inner[key])


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found
