"""The bytes of a trace file as lines of text."""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO

from mirage.domain.errors import TraceError
from mirage.trace.parquet import MAGIC

_GZIP = b"\x1f\x8b"
LONGEST_LINE = 1 << 20
"""Bytes; rows of jobs have some hundred."""
LARGEST_UNPACKED = 2 << 30
"""Bytes of an unpacked archive: a thousandth of them is enough to hold them packed."""
_PART = 1 << 20


def unpack(data: bytes, path: str) -> bytes:
    """``data``, unpacked where it is gzip.

    Raises ``TraceError`` for a damaged archive, an empty file, a line or an unpacked archive that is too long.
    """
    if data.startswith(_GZIP):
        try:
            data = _unpacked(data, path)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(path, 0, "", f"damaged gzip file: {error}") from error
    elif not _is_binary(data):
        _Lines(path).check(data)
    if not data or data.isspace():
        raise TraceError(path, 0, "", "the file is empty")
    return data


class _Lines:
    """Finds a line that is too long, in parts as they come."""

    def __init__(self, path: str) -> None:
        self._path, self._ended, self._open = path, 0, 0

    def check(self, part: bytes) -> None:
        """The next part. Raises ``TraceError``."""
        at = 0
        while len(part) - at > LONGEST_LINE - self._open:
            end = part.rfind(b"\n", at, at + LONGEST_LINE - self._open + 1)
            if end < 0:
                line = self._ended + part.count(b"\n", 0, at) + 1
                raise TraceError(self._path, line, "", f"the line is longer than {LONGEST_LINE} bytes")
            at, self._open = end + 1, 0
        self._ended += part.count(b"\n")
        last = part.rfind(b"\n", at) + 1
        self._open = len(part) - max(last, at) + (0 if last or at else self._open)


def _unpacked(data: bytes, path: str) -> bytes:
    """In parts, so that no more is held than may be."""
    whole, lines = bytearray(), _Lines(path)
    with gzip.GzipFile(fileobj=BytesIO(data)) as archive:
        while part := archive.read(_PART):
            if len(whole) + len(part) > LARGEST_UNPACKED:
                raise TraceError(path, 0, "", f"the archive holds more than {LARGEST_UNPACKED} bytes; split it")
            whole += part
            if not _is_binary(whole):
                lines.check(part)
    return bytes(whole)


def _is_binary(data: bytes | bytearray) -> bool:
    """A Parquet file, which has no lines."""
    return data.startswith(MAGIC)


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
