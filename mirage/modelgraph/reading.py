"""The parts of an ONNX file that Mirage's exporters write; anything else is an error.

Below are protocol buffers as bytes on the wire, read strictly (protobuf.dev/programming-guides/encoding): a
message is a list of fields. An unknown field is an error, and is not skipped, because the runtime that loads
the file afterwards may know it. Field numbers are those of onnx.proto. Not read, and so rejected in any place:
tensors in other files, sparse tensors, graphs within attributes (control flow), functions, training
information.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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


_DOCUMENT = {"producer_name": 2, "producer_version": 3, "domain": 4, "model_version": 5, "doc_string": 6}
_IR_VERSION, _GRAPH, _OPSET, _METADATA = 1, 7, 8, 14
_MODEL = {_IR_VERSION, _GRAPH, _OPSET, _METADATA, *_DOCUMENT.values()}
_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_GRAPH_FIELDS = {_NODE, _INITIALIZER, _INPUT, _OUTPUT, 2, 10, 13, 16}
_NODE_FIELDS = {1, 2, 3, 4, 5, 6, 7, 9}
_ATTRIBUTE_FIELDS = {1, 2, 3, 4, 5, 7, 8, 9, 13, 20}
_TENSOR_FIELDS = {1, 2, 4, 5, 7, 8, 9, 10, 12, 14, 16}
_EXTERNAL_DATA = 13
_FLOATS, _INTS = 7, 8
_REPEATED = {
    "model": {_OPSET, _METADATA},
    "graph": {_NODE, _INITIALIZER, _INPUT, _OUTPUT, 13, 16},
    "node": {1, 2, 5, 9},
    "attribute": {7, 8, 9},
    "tensor": {1, 4, 5, 7, 10, 16},
}

_ITEM = {1: 4, 6: 4, 7: 8, 9: 1, 11: 8}
"""Bytes of one element, by ONNX's number of the type: float, int32, int64, bool, double."""
_TYPED = {4: (FIXED32, 4), 5: (VARINT, 0), 7: (VARINT, 0), 10: (FIXED64, 8)}
"""Fields of a tensor with elements that are not raw: wire type where they are not packed, and bytes of one."""
_VALUES = {2: (FIXED32,), 3: (VARINT,), 4: (BYTES,), 7: (FIXED32, BYTES), 8: (VARINT, BYTES), 9: (BYTES,)}
"""Fields of an attribute with its values, and their wire types."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the graph."""

    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[Field, ...]]
    """The fields of each value by the attribute's name."""


@dataclass(slots=True)
class Contents:
    """Operators, constants and versions of an ONNX file."""

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: int = 0
    outputs: int = 0
    elements: int = 0
    """Numbers in all constants."""


def read_graph(content: bytes, most_nodes: int) -> Contents:
    """Parse a file. Raises ``BadGraph`` for anything that Mirage's exporters do not write."""
    found, graphs = Contents(), 0
    for each in _checked(memoryview(content), _MODEL, "model"):
        if each.number == _IR_VERSION:
            found.ir_version = _number(each)
        elif each.number == _OPSET:
            domain, version = _opset(_message(each))
            if domain in found.opsets:
                raise BadGraph(f"the domain {domain!r} has two versions")
            found.opsets[domain] = version
        elif each.number == _GRAPH:
            graphs += 1
            _read_graph(_message(each), found, most_nodes)
    if not graphs:
        raise BadGraph("has no graph")
    return found


def integers_of(values: Iterable[Field]) -> NDArray[np.int64]:
    """An attribute that is a list of integers, packed or not. Raises ``BadGraph``."""
    listed = list(values)
    if any(each.number != _INTS for each in listed):
        raise BadGraph("an attribute is not a list of integers")
    return np.concatenate([_whole_numbers(each) for each in listed]) if listed else np.zeros(0, np.int64)


def count_of_floats(values: Iterable[Field]) -> int:
    """Number of values of an attribute that is a list of floats. Raises ``BadGraph``."""
    listed = list(values)
    if any(each.number != _FLOATS or len(each.content) % 4 for each in listed):
        raise BadGraph("an attribute is not a list of floats")
    return sum(len(each.content) for each in listed) // 4


def _read_graph(message: memoryview, found: Contents, most_nodes: int) -> None:
    for each in _checked(message, _GRAPH_FIELDS, "graph"):
        if each.number == _NODE:
            if len(found.nodes) >= most_nodes:
                raise BadGraph(f"has more than {most_nodes:,} operators")
            found.nodes.append(_node(_message(each), found))
        elif each.number == _INITIALIZER:
            found.elements += _elements(_message(each))
        found.inputs += each.number == _INPUT
        found.outputs += each.number == _OUTPUT


def _node(message: memoryview, found: Contents) -> Node:
    texts: dict[int, list[str]] = {1: [], 2: [], 4: [""], 7: [""]}
    attributes: dict[str, tuple[Field, ...]] = {}
    for each in _checked(message, _NODE_FIELDS, "node"):
        if each.number == 5:
            name, values = _attribute(_message(each), found)
            if name in attributes:
                raise BadGraph(f"the attribute {name!r} is given twice")
            attributes[name] = values
        elif each.number in texts:
            texts[each.number].append(_text(each))
    return Node(texts[4][-1], texts[7][-1], tuple(texts[1]), tuple(texts[2]), attributes)


def _attribute(message: memoryview, found: Contents) -> tuple[str, tuple[Field, ...]]:
    name, values = "", []
    for each in _checked(message, _ATTRIBUTE_FIELDS, "attribute"):
        if each.number == 1:
            name = _text(each)
        elif each.number == 5:
            found.elements += _elements(_message(each))
        if each.number in _VALUES:
            if each.kind not in _VALUES[each.number]:
                raise BadGraph(f"an attribute has a value of wire type {each.kind}")
            values.append(each)
    return name, tuple(values)


def _elements(message: memoryview) -> int:
    """Number of values of a tensor, as in its file. Raises ``BadGraph``."""
    sizes: list[int] = []
    kind, held, raw = 0, 0, -1
    for each in _checked(message, _TENSOR_FIELDS, "tensor"):
        match each.number:
            case 1:
                sizes += _whole_numbers(each).tolist()
            case 2:
                kind = _number(each)
            case 14:
                if _number(each):
                    raise BadGraph("a tensor refers to another file")
            case 9:
                raw = len(_message(each))
            case 4 | 5 | 7 | 10:
                held += _held(each)
    if kind not in _ITEM:
        raise BadGraph(f"a tensor has elements of type {kind}")
    if any(size < 0 for size in sizes):
        raise BadGraph("a tensor has a negative size")
    count = prod(sizes)
    if (count * _ITEM[kind], 0) != (raw, held) if raw >= 0 else count != held:
        raise BadGraph("a tensor has another size than its content")
    return count


def _held(each: Field) -> int:
    """Number of elements in one field of a tensor."""
    kind, width = _TYPED[each.number]
    if each.kind not in (kind, BYTES):
        raise BadGraph(f"a tensor has elements of wire type {each.kind}")
    if not width:
        return len(_whole_numbers(each))
    if len(each.content) % width:
        raise BadGraph("an element of a tensor is incomplete")
    return len(each.content) // width


def _whole_numbers(each: Field) -> NDArray[np.int64]:
    """Number of values of a field that may be packed."""
    if each.kind == BYTES:
        return varints(each.content)
    return np.array([_number(each)], np.int64)


def _opset(message: memoryview) -> tuple[str, int]:
    domain, version = "", 0
    for each in _checked(message, {1, 2}, "opset"):
        if each.number == 1:
            domain = _text(each)
        else:
            version = _number(each)
    return domain, version


def _checked(message: memoryview, known: set[int], name: str) -> Iterator[Field]:
    """The fields. Raises ``BadGraph`` for an unknown field, or a duplicate that is not allowed."""
    seen: set[int] = set()
    repeated = _REPEATED.get(name, set())
    for each in fields(message, lists=name == "attribute"):
        if each.number not in known:
            raise BadGraph(_unknown(name, each.number))
        if each.number in seen and each.number not in repeated:
            raise BadGraph(f"{name}: duplicate field {each.number}")
        seen.add(each.number)
        yield each


def _unknown(name: str, number: int) -> str:
    known = {
        ("model", 20): "training information",
        ("model", 25): "functions",
        ("graph", 15): "sparse tensors",
        ("attribute", 6): "a graph within an operator",
        ("attribute", 11): "graphs within an operator",
        ("attribute", 22): "a sparse tensor",
        ("attribute", 23): "sparse tensors",
        ("tensor", _EXTERNAL_DATA): "a tensor that refers to another file",
    }
    return f"has {known.get((name, number), f'field {number} in a message of kind {name}')}"


def _message(each: Field) -> memoryview:
    if each.kind != BYTES:
        raise BadGraph(f"field {each.number} is not a message")
    return each.content


def _number(each: Field) -> int:
    if each.kind != VARINT:
        raise BadGraph(f"field {each.number} is not a number")
    return signed(each.value)


def _text(each: Field) -> str:
    try:
        return bytes(_message(each)).decode()
    except UnicodeDecodeError:
        raise BadGraph("a name is not UTF-8") from None
