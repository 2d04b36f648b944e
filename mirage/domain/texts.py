"""Texts that others wrote, made fit to be stored and to be shown."""

from __future__ import annotations


def storable(text: str) -> str:
    """Return the text as every database and every encoder takes it: a NUL or a stray byte becomes a mark."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def printable(text: str) -> str:
    """Return the text with a question mark for each control character, line break and mark of direction."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def one_line(text: str, longest: int) -> str:
    """Return the text as one printable line of at most ``longest`` characters."""
    return printable(" ".join(text[: 2 * longest].split()))[:longest]
