"""Protocol buffers as bytes on the wire, read strictly (protobuf.dev/programming-guides/encoding).

A message is a list of fields. An unknown field is an error, and is not skipped, because the runtime that loads the
file afterwards may know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10
_MORE = 0x80


class BadGraph(ValueError):
    """A file that is no ONNX graph, or one that must not run; the text states the reason."""


class Field(NamedTuple):
    """One field of a message: its number, wire type, and value."""

    number: int
    kind: int
    value: int
    """Value of a ``VARINT``, as an unsigned number of 64 bits."""
    content: memoryview
    """Value of all other types."""


_NO_CONTENT = memoryview(b"")


def fields(message: memoryview, lists: bool = False) -> Iterator[Field]:
    """Every field in its order. Raises ``BadGraph``.

    ``lists``: fields 7 and 8 are lists of floats and of integers, as in an attribute. If they are not packed,
    neighbours are returned as one packed field: millions of them are usual.
    """
    place, end = 0, len(message)
    while place < end:
        tag, place = varint(message, place)
        number, kind = tag >> 3, tag & 7
        if lists and tag in _LISTS:
            packed, place = _LISTS[tag](message, place)
            yield Field(number, BYTES, 0, packed)
            continue
        if kind == VARINT:
            value, place = varint(message, place)
            yield Field(number, kind, value, _NO_CONTENT)
            continue
        if kind == BYTES:
            length, place = varint(message, place)
        elif kind in _WIDTH:
            length = _WIDTH[kind]
        else:
            raise BadGraph(f"field {number} has wire type {kind}")
        if length > end - place:
            raise BadGraph(f"field {number} is longer than the message")
        yield Field(number, kind, 0, message[place : place + length])
        place += length


def varint(message: memoryview, place: int) -> tuple[int, int]:
    """The number at ``place`` and the place after it. Raises ``BadGraph``."""
    value = shift = 0
    for length in range(_LONGEST_VARINT):
        if place + length >= len(message):
            break
        byte = message[place + length]
        value |= (byte & ~_MORE) << shift
        if not byte & _MORE:
            if value >> 64:
                break
            return value, place + length + 1
        shift += 7
    raise BadGraph("a number is incomplete")


def varints(content: memoryview) -> NDArray[np.int64]:
    """The numbers of a packed field. Raises ``BadGraph``."""
    data = np.frombuffer(content, np.uint8)
    if not len(data):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(data < _MORE)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise BadGraph("a number is incomplete")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST_VARINT:
        raise BadGraph("a number is incomplete")
    shifts = (7 * (np.arange(len(data)) - np.repeat(starts, lengths))).astype(np.uint64)
    parts = (data & np.uint8(_MORE - 1)).astype(np.uint64) << shifts
    found: NDArray[np.int64] = np.add.reduceat(parts, starts).view(np.int64)
    return found


def _floats(message: memoryview, place: int) -> tuple[memoryview, int]:
    """The list whose first tag ends at ``place``, without tags, and the place after it."""
    data = np.frombuffer(message, np.uint8)[place - 1 :]
    rows = data[: len(data) // 5 * 5].reshape(-1, 5)
    count = _leading(rows[:, 0] == _FLOAT)
    if not count:
        raise BadGraph("a number is incomplete")
    return memoryview(rows[:count, 1:].tobytes()), place - 1 + 5 * count


def _integers(message: memoryview, place: int) -> tuple[memoryview, int]:
    """The same for integers: tags and values alternate, both in this number format."""
    data = np.frombuffer(message, np.uint8)[place - 1 :]
    ends = np.flatnonzero(data < _MORE)
    tags = np.append(0, ends[1::2] + 1)[: len(ends) // 2]
    count = _leading((data[tags] == _INTEGER) & (ends[0 : 2 * len(tags) : 2] == tags))
    if not count:
        raise BadGraph("a number is incomplete")
    end = int(ends[2 * count - 1]) + 1
    content = np.delete(data[:end], tags[:count])
    return memoryview(content.tobytes()), place - 1 + end


def _leading(good: NDArray[np.bool_]) -> int:
    """Number of true values before the first false one."""
    return len(good) if good.all() else int(np.argmin(good))


_FLOAT, _INTEGER = 7 << 3 | FIXED32, 8 << 3 | VARINT
_LISTS: dict[int, Callable[[memoryview, int], tuple[memoryview, int]]] = {_FLOAT: _floats, _INTEGER: _integers}


def signed(value: int) -> int:
    """A number of 64 bits as ``int64``."""
    return value - (1 << 64) if value >> 63 else value
