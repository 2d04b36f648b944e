"""Requests, answers and tensors of the Open Inference Protocol (KServe v2), in JSON or as bytes behind it.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol and its binary extension.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.documentreading import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    **{
        f"{sign}INT{bits}": np.dtype(f"<{sign.lower() or 'i'}{bits // 8}")
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_KINDS: dict[str, frozenset[type]] = {
    "f": frozenset((int, float)),
    "i": frozenset((int,)),
    "u": frozenset((int,)),
    "b": frozenset((bool,)),
}
"""JSON values that a tensor of each kind may hold."""
LONGEST_NAME = 256
_MOST_DIMENSIONS = 32
_LARGEST_SIZE = 1 << 40
"""Largest dimension, and largest number of elements: far more than any body holds."""
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Signature:
    """Name, datatype and shape of one input or output of a model; -1: any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """JSON of the protocol."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Signature:
        """Parse that JSON."""
        return cls(
            str(document["name"]), str(document["datatype"]), tuple(int(size) for size in document["shape"])
        )


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: little-endian, row by row."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: memoryview

    def document(self) -> dict[str, Any]:
        """JSON of the tensor without its bytes."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The same bytes as an array."""
        return np.frombuffer(self.data, DATATYPES[self.datatype]).reshape(self.shape)

    @classmethod
    def of(cls, name: str, array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
        """Bytes of an array; not copied if they are contiguous."""
        whole = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        data = whole.reshape(-1).data.cast("B") if whole.size else memoryview(b"")
        return cls(name, NAMES[whole.dtype], array.shape, data)


def cut(documents: list[dict[str, Any]], data: memoryview) -> list[Tensor]:
    """Tensors whose bytes follow one another. Raises ``RequestRefused`` where they do not fit."""
    tensors, at = [], 0
    for document in documents:
        found = described(document)
        size = _elements(found) * DATATYPES[found.datatype].itemsize
        tensors.append(Tensor(found.name, found.datatype, found.shape, data[at : at + size]))
        at += size
    if at != len(data):
        raise RequestRefused(400, f"the tensors need {at} bytes, {len(data)} were sent")
    return tensors


def from_json(document: dict[str, Any]) -> Tensor:
    """A tensor with its numbers in JSON, flat or nested. Raises ``RequestRefused``."""
    found = described(document)
    data = document.get("data")
    array = _parse_numbers(found, _flat(found.name, data if isinstance(data, list) else [data]))
    if array.size != _elements(found):
        raise RequestRefused(
            400,
            f"input {found.name!r}: shape {list(found.shape)} has {_elements(found)} elements, data {array.size}",
        )
    return Tensor(found.name, found.datatype, found.shape, Tensor.of(found.name, array).data)


def described(document: object) -> Signature:
    """Name, datatype and shape of a tensor, all within their bounds. Raises ``RequestRefused``."""
    if not isinstance(document, dict):
        raise RequestRefused(400, "inputs: expected objects with name, datatype and shape")
    name, datatype, shape = document.get("name"), document.get("datatype"), document.get("shape")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise RequestRefused(400, f"inputs: expected a name of at most {LONGEST_NAME} characters")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise RequestRefused(
            400, f"input {name!r}: unknown datatype {shown(datatype)} (choose from {', '.join(DATATYPES)})"
        )
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(map(_is_size, shape)):
        raise RequestRefused(
            400,
            f"input {name!r}: shape must be a list of at most {_MOST_DIMENSIONS}"
            f" integers from 0 to {_LARGEST_SIZE}",
        )
    found = Signature(name, datatype, tuple(shape))
    _elements(found)
    return found


def shown(value: object) -> str:
    """A value of a request, shortened for an error message; only the type where it is no text."""
    return repr(value[:_SHOWN]) if isinstance(value, str) else f"of type {type(value).__name__}"


def check_signature(tensors: Sequence[Signature], inputs: Sequence[Signature]) -> None:
    """Raise ``RequestRefused`` where a model does not take these."""
    wanted, given = {each.name for each in inputs}, [tensor.name for tensor in tensors]
    if sorted(given) != sorted(wanted):
        names = ", ".join(given)
        raise RequestRefused(
            400, f"the model's inputs are {', '.join(sorted(wanted))}; given: {names[:LONGEST_NAME]}"
        )
    by_name = {each.name: each for each in inputs}
    for tensor in tensors:
        signature = by_name[tensor.name]
        if tensor.datatype != signature.datatype:
            raise RequestRefused(400, f"input {tensor.name!r} is {signature.datatype}, not {tensor.datatype}")
        if not _fits(tensor.shape, signature.shape):
            expected = list(signature.shape)
            raise RequestRefused(400, f"input {tensor.name!r} has shape {list(tensor.shape)}, expected {expected}")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, s) for s, w in zip(shape, wanted, strict=True))


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_SIZE


def _elements(tensor: Signature) -> int:
    """Number of elements of a shape. Raises ``RequestRefused`` before a product grows long."""
    elements = 1
    for size in tensor.shape:
        elements *= max(1, size)
        if elements > _LARGEST_SIZE:
            raise RequestRefused(400, f"input {tensor.name!r}: shape has more than {_LARGEST_SIZE} elements")
    return 0 if 0 in tensor.shape else elements


def _flat(name: str, data: list[Any]) -> list[Any]:
    """The values of nested lists, in order. Raises ``RequestRefused`` where rows differ.

    Done level by level without numpy, which would pad every element to the longest text.
    """
    for _ in range(_MOST_DIMENSIONS):
        if list not in set(map(type, data)):
            return data
        if set(map(type, data)) != {list} or len(set(map(len, data))) > 1:
            raise RequestRefused(400, f"input {name!r}: the rows of data differ in length")
        data = list(chain.from_iterable(data))
    raise RequestRefused(400, f"input {name!r}: data is nested more than {_MOST_DIMENSIONS} deep")


def _parse_numbers(tensor: Signature, numbers: list[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers of a datatype, neither rounded nor wrapped around."""
    name, datatype, dtype = tensor.name, tensor.datatype, DATATYPES[tensor.datatype]
    if not set(map(type, numbers)) <= _KINDS[dtype.kind]:
        raise RequestRefused(400, f"input {name!r}: data does not hold numbers of datatype {datatype}")
    beyond = RequestRefused(400, f"input {name!r}: a number in data is out of the range of {datatype}")
    if dtype.kind in "iu" and numbers and not _within(numbers, dtype):
        raise beyond
    if dtype.kind != "f":
        return np.array(numbers, dtype)
    try:
        found = np.array(numbers, np.float64)
    except OverflowError:
        raise beyond from None
    with np.errstate(over="ignore"):
        cast = found.astype(dtype)
    if not np.isfinite(cast).all():
        raise beyond
    return cast


def _within(numbers: list[int], dtype: np.dtype[Any]) -> bool:
    bounds = np.iinfo(dtype)
    return bounds.min <= min(numbers) and max(numbers) <= bounds.max


_TERSE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
HEADER_LENGTH = "inference-header-content-length"
LARGEST_INLINE = 32 << 10
"""Bytes of JSON that are read or written within the event loop: a few milliseconds."""
_MOST_NUMBERS = 200_000
"""Most numbers in a JSON answer; the same as in a request."""
_LONGEST_NUMBER = 25
"""Characters of a number in JSON."""
_NUMBERS_AT_ONCE = 4096
_MOST_TENSORS = 1024
_LONGEST_ID = 1024


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """An inference request; nothing else of its JSON is kept."""

    id: str
    deadline: object
    """Milliseconds from the request parameters, if given."""
    tensors: list[Tensor]
    outputs: tuple[str, ...]
    """Requested outputs; empty: all."""
    binary: dict[str, bool]
    """Whether an output is requested as bytes, where the request states it for this output."""
    all_binary: bool
    """Whether the other outputs are requested as bytes."""

    def as_bytes(self, output: str) -> bool:
        """Whether this output is requested as bytes."""
        return self.binary.get(output, self.all_binary)

    def json_size(self, tensors: Sequence[Tensor]) -> int:
        """Most bytes of the answer's numbers in JSON. Raises ``RequestRefused`` for too many."""
        numbers = sum(_count(tensor) for tensor in tensors if not self.as_bytes(tensor.name))
        if numbers > _MOST_NUMBERS:
            raise RequestRefused(400, f"the outputs have more than {_MOST_NUMBERS} numbers; request binary_data")
        return _LONGEST_NUMBER * numbers


def json_length(text: str | None, body: int) -> int:
    """Length of the JSON part of a body, from its ``HEADER_LENGTH`` (``text``). Raises ``RequestRefused``."""
    if text is None:
        return body
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= body):
        raise RequestRefused(400, f"{HEADER_LENGTH}: expected bytes up to the body's {body}, not {text[:20]!r}")
    return int(text)


def has_small_json(text: str | None, body: int) -> bool:
    """Whether the JSON part of a body (``HEADER_LENGTH``: ``text``) is read within the event loop."""
    if text is not None and text.isdecimal() and len(text) < 12:
        body = min(body, int(text))
    return body <= LARGEST_INLINE


def read_request(
    body: bytes, length: int, check: Callable[[Sequence[Signature], Sequence[str]], object]
) -> InferenceRequest:
    """Parse a request whose first ``length`` bytes are JSON. Raises ``RequestRefused``. Any thread.

    ``check`` gets the inputs' signatures and the requested outputs before any number is read.
    """
    document = read_object(body[:length])
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or not 0 < len(inputs) <= _MOST_TENSORS:
        raise RequestRefused(400, f"inputs: expected a list of tensors, at most {_MOST_TENSORS}")
    outputs = {output["name"]: _parameters(output).get("binary_data") for output in _outputs(document)}
    request_id, parameters = document.get("id", ""), _parameters(document)
    if not isinstance(request_id, str) or len(request_id) > _LONGEST_ID:
        raise RequestRefused(400, f"id: expected a text of at most {_LONGEST_ID} characters")
    check([described(each) for each in inputs], tuple(outputs))
    return InferenceRequest(
        id=request_id,
        deadline=parameters.get("deadline_ms"),
        tensors=_tensors(inputs, memoryview(body)[length:]),
        outputs=tuple(outputs),
        binary={name: wanted is True for name, wanted in outputs.items() if wanted is not None},
        all_binary=parameters.get("binary_data_output") is True,
    )


def write_answer(model: str, asked: InferenceRequest, tensors: Sequence[Tensor]) -> tuple[bytes, dict[str, str]]:
    """A body and its headers. Raises ``RequestRefused`` for non-finite numbers, or too many. Any thread."""
    asked.json_size(tensors)
    documents, tail = [], []
    for tensor in tensors:
        document = tensor.document()
        if asked.as_bytes(tensor.name):
            document["parameters"] = {"binary_data_size": len(tensor.data)}
            documents.append(_TERSE.encode(document))
            tail.append(tensor.data)
        else:
            documents.append(f'{_TERSE.encode(document)[:-1]},"data":[{_numbers(tensor)}]}}')
    named = f',"id":{_TERSE.encode(asked.id)}' if asked.id else ""
    head = f'{{"model_name":{_TERSE.encode(model)},"outputs":[{",".join(documents)}]{named}}}'.encode()
    if not tail:
        return head, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return b"".join((head, *tail)), headers


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object with a bounded number of values. Raises ``RequestRefused``. Any thread."""
    try:
        document = parse_json(text)
    except ValueError as error:
        why = str(error).partition(";")[0]  # the rest is advice for programmers
        raise RequestRefused(400, f"invalid JSON: {why}") from None
    if not isinstance(document, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    return document


def _count(tensor: Tensor) -> int:
    return len(tensor.data) // DATATYPES[tensor.datatype].itemsize


def _numbers(tensor: Tensor) -> str:
    """Numbers, comma-separated. Written in parts, so that other threads get a turn in between."""
    flat = tensor.array().reshape(-1)
    parts = (flat[at : at + _NUMBERS_AT_ONCE].tolist() for at in range(0, flat.size, _NUMBERS_AT_ONCE))
    try:
        return ",".join(_TERSE.encode(part)[1:-1] for part in parts)
    except ValueError:
        raise RequestRefused(
            500, "an output is not finite, which JSON cannot represent; request binary_data"
        ) from None


def _tensors(inputs: list[Any], tail: memoryview) -> list[Tensor]:
    """Tensors with data in JSON, and those with data behind it, in the order given."""
    sizes = [_binary_size(each) for each in inputs]
    behind = [each for each, size in zip(inputs, sizes, strict=True) if size is not None]
    found = iter(cut(behind, tail))
    pairs = list(zip(inputs, sizes, strict=True))
    tensors = [from_json(each) if size is None else next(found) for each, size in pairs]
    for tensor, size in zip(tensors, sizes, strict=True):
        if size is not None and size != len(tensor.data):
            item = DATATYPES[tensor.datatype].itemsize
            raise RequestRefused(
                400,
                f"input {tensor.name!r}: binary_data_size is {size}, but shape {list(tensor.shape)} of {item}-byte"
                f" elements needs {len(tensor.data)}",
            )
    return tensors


def _binary_size(document: object) -> int | None:
    size = _parameters(document).get("binary_data_size") if isinstance(document, dict) else None
    if size is not None and (type(size) is not int or not 0 <= size < 1 << 63):
        raise RequestRefused(400, "binary_data_size: expected a number of bytes")
    return size


def _outputs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The requested outputs, each once."""
    found = document.get("outputs", [])
    if not isinstance(found, list) or len(found) > _MOST_TENSORS:
        raise RequestRefused(400, f"outputs: expected a list, at most {_MOST_TENSORS}")
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in found):
        raise RequestRefused(400, "outputs: expected objects with a name")
    if len({each["name"] for each in found}) < len(found):
        raise RequestRefused(400, "outputs: duplicate name")
    return found


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestRefused(400, "parameters: expected an object")
    return found
