"""JSON and TOML that comes from outside, as plain values: whatever is wrong with a text is a ``ValueError``.

The standard readers raise ``RecursionError`` for what is nested deeply, and tomllib an error of another kind for a
number of too many digits.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    Pairs = Callable[[list[tuple[str, Any]]], Any]

MOST_PARTS = 200_000
"""Brackets, commas and strings of a document: the largest chain has 70,000. A text of 8 MiB may have 5 million,
which take 500 MiB as objects."""
_PART = re.compile(r'[\[{,]|"[^"]*"?')
_BAD_ESCAPE = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""After what is well written: the escape of a NUL, or of half a character."""
_MOST_DIGITS = 300
_SHOWN = 40
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
"""tomllib takes time in proportion to the square of a key's parts."""
_TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes, pairs: Pairs | None = None, most: int | None = MOST_PARTS) -> Any:
    """The value of a JSON document; ``pairs`` makes each object.

    Raises ``ValueError``, also for numbers that are not finite (JSON has none, and 1e400 is read as one), and for
    more than ``most`` brackets, commas and strings before any object is made. ``None``: only the size is bounded.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if most is not None:
        check_parts(text, most)
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_float=_finite, parse_constant=_not_json)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def decode_foreign(content: bytes) -> str:
    """Text of a program that passes on users' words as they are, such as Slurm's commands. Never fails.

    Bytes that are no UTF-8 are written as Python does (surrogateescape), so that the bytes can be had back.
    """
    return content.decode("utf-8", "surrogateescape")


def parse_foreign_json(content: bytes) -> Any:
    """The value of a JSON document of a program that passes on users' words as they are, such as slurmrestd.

    No word can spoil the document: bytes that are no UTF-8 are as in ``decode_foreign``, strings may hold control
    characters, NUL and half characters become U+FFFD. A number that is not finite, or that no column can hold, is
    a NaN or an infinity. Raises ``ValueError`` where the whole is no JSON.
    """
    text = decode_foreign(content)
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if "\\u" in text:
        text = _BAD_ESCAPE.sub(lambda found: found[1] or r"\ufffd", text)
    try:
        try:
            return json.loads(text, strict=False)
        except json.JSONDecodeError:
            raise
        except ValueError:  # int() takes no more than some thousand digits
            return json.loads(text, strict=False, parse_int=_integer)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MOST_DIGITS else math.inf


def check_parts(text: str, most: int = MOST_PARTS) -> None:
    """Raises ``ValueError`` for a JSON document of more parts than ``most``; makes nothing of it."""
    if sum(map(text.count, '[{,"')) <= most:
        return
    plain = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    if any(number >= most for number, _ in enumerate(_PART.finditer(plain))):
        raise ValueError(f"it has more than {most} values")


def parse_own_json(text: str | bytes) -> Any:
    """The value of a document that Mirage wrote, which may hold NaN and Infinity. Raises ``ValueError``."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_json(text)


def _not_json(text: str) -> NoReturn:
    raise ValueError(f"{text[:_SHOWN]} is no finite number")


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The tables of a TOML document; bytes are UTF-8. Raises ``ValueError``."""
    text = text if isinstance(text, str) else text.decode()
    if _DEEP_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
