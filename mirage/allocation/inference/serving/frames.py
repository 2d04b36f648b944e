"""Messages between gateway and workers: a JSON header and bytes, each with its length.

A frame is the header's length (4 bytes, little-endian), the length of the bytes (8 bytes), the header, the bytes.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from mirage.documenttext import parse_json

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_LENGTHS = struct.Struct("<IQ")
_TERSE = json.JSONEncoder(separators=(",", ":"))
_LONGEST_HEADER = 1 << 20
LONGEST_BYTES = 2 << 30


class BadFrame(Exception):
    """The received bytes are no frame."""


def frame(header: dict[str, Any], *parts: bytes | memoryview) -> list[bytes | memoryview]:
    """The buffers of a frame, to be sent in order; ``parts`` are not copied."""
    text = _TERSE.encode(header).encode()
    return [_LENGTHS.pack(len(text), sum(map(len, parts))) + text, *parts]


class Assembler:
    """Parses frames from received data of any size."""

    def __init__(self, longest: int = LONGEST_BYTES) -> None:
        """``longest``: largest frame, in bytes."""
        self.longest = longest
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], memoryview]]:
        """Add data and return the complete frames. Raises ``BadFrame``."""
        self._held += data
        while found := self._next():
            yield found

    def _next(self) -> tuple[dict[str, Any], memoryview] | None:
        if len(self._held) < _LENGTHS.size:
            return None
        text, size = _checked(*_LENGTHS.unpack_from(self._held), longest=self.longest)
        end = _LENGTHS.size + text + size
        if len(self._held) < end:
            return None
        whole = memoryview(bytes(memoryview(self._held)[:end]))
        del self._held[:end]
        return _header(whole[_LENGTHS.size : end - size]), whole[end - size :]


def too_large(size: int, largest: int) -> str:
    """Why an answer is too large to be sent."""
    return f"the answer has {size:,} bytes, at most {largest:,} (largest_answer_mb); request less at a time"


def send(connection: socket.socket, header: dict[str, Any], *parts: bytes | memoryview) -> None:
    """Send a frame on a blocking socket."""
    buffers = frame(header, *parts)
    if sum(map(len, buffers)) < 1 << 16:
        connection.sendall(b"".join(buffers))
        return
    for buffer in buffers:
        connection.sendall(buffer)


def receive(connection: socket.socket, longest: int = LONGEST_BYTES) -> tuple[dict[str, Any], memoryview]:
    """Read a frame from a blocking socket. Raises ``BadFrame``, and ``EOFError`` where the peer has closed."""
    text, size = _checked(*_LENGTHS.unpack(_exactly(connection, _LENGTHS.size)), longest=longest)
    return _header(_exactly(connection, text)), _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> memoryview:
    whole = memoryview(bytearray(size))
    got = 0
    while got < size:
        count = connection.recv_into(whole[got:])
        if count == 0:
            raise EOFError("the peer has closed the connection")
        got += count
    return whole


def _checked(text: int, size: int, *, longest: int) -> tuple[int, int]:
    if text > _LONGEST_HEADER or size > longest:
        raise BadFrame(f"frame too long: {text} + {size} bytes")
    return text, size


def _header(text: memoryview) -> dict[str, Any]:
    try:
        header = parse_json(bytes(text))
    except ValueError as error:
        raise BadFrame(f"the header of a frame is invalid JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFrame("the header of a frame is not a JSON object")
    return header
