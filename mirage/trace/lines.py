"""The bytes of a trace file as lines of text."""

from __future__ import annotations

import gzip
import zlib

from mirage.domain.errors import TraceError

_GZIP = b"\x1f\x8b"


def unpack(data: bytes, path: str) -> bytes:
    """``data``, unpacked where it is gzip; raises ``TraceError`` for a damaged archive or an empty file."""
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(path, 0, "", f"damaged gzip file: {error}") from error
    if not data.strip():
        raise TraceError(path, 0, "", "the file is empty")
    return data


def split_lines(data: bytes) -> tuple[list[str], tuple[str, ...]]:
    """Lines without their ends (only newlines end a line), and a note where the text was not UTF-8."""
    try:
        text, notes = data.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        return _split(text), ("the text is not UTF-8; read as Latin-1",)
    return _split(text), notes


def _split(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines
