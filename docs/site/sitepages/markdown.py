"""Markdown of what the program says of itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OWN = re.compile(r"([\\`*_{}\[\]<>|#])")


def plain(text: str) -> str:
    """Text in which nothing is taken for Markdown but double backticks, which docstrings use for code."""
    parts = re.split(r"``(.+?)``", text)
    return "".join(code(part) if index % 2 else _OWN.sub(r"\\\1", part) for index, part in enumerate(parts))


def code(text: str) -> str:
    """Text as code, in a table's cell too."""
    return f"<code>{_escaped(text)}</code>"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines)


def fenced(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def page(*blocks: str) -> str:
    """Blocks with an empty line between them."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def _escaped(text: str) -> str:
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "*": "&#42;", "_": "&#95;", "`": "&#96;"}
    return "".join(entities.get(letter, letter) for letter in text)
