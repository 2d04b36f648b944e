"""Requests and answers of the Open Inference Protocol (KServe v2) as HTTP bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.tensors import DATATYPES, Signature, Tensor, cut, described, from_json
from mirage.documenttext import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
class Asked:
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
        """Most bytes of the answer's numbers in JSON. Raises ``Refusal`` for too many."""
        numbers = sum(_count(tensor) for tensor in tensors if not self.as_bytes(tensor.name))
        if numbers > _MOST_NUMBERS:
            raise Refusal(400, f"the outputs have more than {_MOST_NUMBERS} numbers; request binary_data")
        return _LONGEST_NUMBER * numbers


def json_length(text: str | None, body: int) -> int:
    """Length of the JSON part of a body, from its ``HEADER_LENGTH`` (``text``). Raises ``Refusal``."""
    if text is None:
        return body
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= body):
        raise Refusal(400, f"{HEADER_LENGTH}: expected bytes up to the body's {body}, not {text[:20]!r}")
    return int(text)


def has_small_json(text: str | None, body: int) -> bool:
    """Whether the JSON part of a body (``HEADER_LENGTH``: ``text``) is read within the event loop."""
    if text is not None and text.isdecimal() and len(text) < 12:
        body = min(body, int(text))
    return body <= LARGEST_INLINE


def read_request(body: bytes, length: int, check: Callable[[Sequence[Signature], Sequence[str]], object]) -> Asked:
    """Parse a request whose first ``length`` bytes are JSON. Raises ``Refusal``. Any thread.

    ``check`` gets the inputs' signatures and the requested outputs before any number is read.
    """
    document = read_object(body[:length])
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or not 0 < len(inputs) <= _MOST_TENSORS:
        raise Refusal(400, f"inputs: expected a list of tensors, at most {_MOST_TENSORS}")
    outputs = {output["name"]: _parameters(output).get("binary_data") for output in _outputs(document)}
    request_id, parameters = document.get("id", ""), _parameters(document)
    if not isinstance(request_id, str) or len(request_id) > _LONGEST_ID:
        raise Refusal(400, f"id: expected a text of at most {_LONGEST_ID} characters")
    check([described(each) for each in inputs], tuple(outputs))
    return Asked(
        id=request_id,
        deadline=parameters.get("deadline_ms"),
        tensors=_tensors(inputs, memoryview(body)[length:]),
        outputs=tuple(outputs),
        binary={name: wanted is True for name, wanted in outputs.items() if wanted is not None},
        all_binary=parameters.get("binary_data_output") is True,
    )


def write_answer(model: str, asked: Asked, tensors: Sequence[Tensor]) -> tuple[bytes, dict[str, str]]:
    """A body and its headers. Raises ``Refusal`` for non-finite numbers, or too many. Any thread."""
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
    """A JSON object with a bounded number of values. Raises ``Refusal``. Any thread."""
    try:
        document = parse_json(text)
    except ValueError as error:
        why = str(error).partition(";")[0]  # the rest is advice for programmers
        raise Refusal(400, f"invalid JSON: {why}") from None
    if not isinstance(document, dict):
        raise Refusal(400, "the body is not a JSON object")
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
        raise Refusal(500, "an output is not finite, which JSON cannot represent; request binary_data") from None


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
            raise Refusal(
                400,
                f"input {tensor.name!r}: binary_data_size is {size}, but shape {list(tensor.shape)} of {item}-byte"
                f" elements needs {len(tensor.data)}",
            )
    return tensors


def _binary_size(document: object) -> int | None:
    size = _parameters(document).get("binary_data_size") if isinstance(document, dict) else None
    if size is not None and (type(size) is not int or not 0 <= size < 1 << 63):
        raise Refusal(400, "binary_data_size: expected a number of bytes")
    return size


def _outputs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The requested outputs, each once."""
    found = document.get("outputs", [])
    if not isinstance(found, list) or len(found) > _MOST_TENSORS:
        raise Refusal(400, f"outputs: expected a list, at most {_MOST_TENSORS}")
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in found):
        raise Refusal(400, "outputs: expected objects with a name")
    if len({each["name"] for each in found}) < len(found):
        raise Refusal(400, "outputs: duplicate name")
    return found


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("parameters", {})
    if not isinstance(found, dict):
        raise Refusal(400, "parameters: expected an object")
    return found
