"""Requests and answers of the Open Inference Protocol (KServe v2) as bodies of HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.tensors import DATATYPES, Tensor, cut, from_json
from mirage.documenttext import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_TERSE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
HEADER_LENGTH = "inference-header-content-length"


@dataclass(frozen=True, slots=True)
class Asked:
    """An inference request."""

    id: str
    parameters: dict[str, Any]
    tensors: list[Tensor]
    outputs: tuple[str, ...]
    """Those that are wanted; empty: all."""
    binary: dict[str, bool]
    """Whether an output is wanted as bytes, where the request says so."""

    def as_bytes(self, output: str) -> bool:
        """Whether this output is wanted as bytes."""
        return self.binary.get(output, self.parameters.get("binary_data_output") is True)


def read_request(body: bytes, header_length: str | None) -> Asked:
    """Raises ``Refusal``."""
    length = _length(header_length, len(body))
    document = read_object(body[:length])
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise Refusal(400, "inputs: expected a list of tensors")
    outputs = [_output(each) for each in _list(document, "outputs")]
    request_id = document.get("id", "")
    if not isinstance(request_id, str):
        raise Refusal(400, "id: expected a text")
    return Asked(
        id=request_id,
        parameters=_parameters(document),
        tensors=_tensors(inputs, memoryview(body)[length:]),
        outputs=tuple(output["name"] for output in outputs),
        binary={
            output["name"]: _parameters(output)["binary_data"] is True
            for output in outputs
            if "binary_data" in _parameters(output)
        },
    )


def write_answer(model: str, asked: Asked, tensors: Sequence[Tensor]) -> tuple[bytes, dict[str, str]]:
    """A body and its headers. Raises ``Refusal`` for numbers that JSON does not have."""
    documents, tail = [], []
    for tensor in tensors:
        document = tensor.document()
        if asked.as_bytes(tensor.name):
            document["parameters"] = {"binary_data_size": len(tensor.data)}
            tail.append(tensor.data)
        else:
            document["data"] = tensor.array().reshape(-1).tolist()
        documents.append(document)
    whole = {"model_name": model, "outputs": documents} | ({"id": asked.id} if asked.id else {})
    try:
        head = _TERSE.encode(whole).encode()
    except ValueError:
        raise Refusal(500, "an output is not finite, which JSON cannot say: ask for binary_data") from None
    if not tail:
        return head, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return b"".join((head, *tail)), headers


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object. Raises ``Refusal``."""
    try:
        document = parse_json(text)
    except ValueError:
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(document, dict):
        raise Refusal(400, "the body is no JSON object")
    return document


def _length(text: str | None, body: int) -> int:
    if text is None:
        return body
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= body):
        raise Refusal(400, f"{HEADER_LENGTH}: {text[:20]!r} is no number of bytes up to the body's {body}")
    return int(text)


def _tensors(inputs: list[Any], tail: memoryview) -> list[Tensor]:
    """Those in JSON, and those behind it, in the order given."""
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
    if size is not None and (type(size) is not int or size < 0):
        raise Refusal(400, "binary_data_size: expected a number of bytes")
    return size


def _output(document: object) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise Refusal(400, "outputs: each is an object with a name")
    return document


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("parameters", {})
    if not isinstance(found, dict):
        raise Refusal(400, "parameters: expected an object")
    return found


def _list(document: dict[str, Any], key: str) -> list[Any]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise Refusal(400, f"{key}: expected a list")
    return found
