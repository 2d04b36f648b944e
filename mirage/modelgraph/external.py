"""Networks that users bring for their allocations: any operators, but all data in one file.

A tensor may name another file for its data, and a runtime would read any such file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import ArtifactMismatch
from mirage.modelgraph.wire import BYTES, BadGraph, fields
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST_NETWORK = 2 << 30
"""Bytes; no ONNX file can be larger."""

_DEEPEST = 64
_INNER: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Messages that contain tensors, by the field numbers of onnx.proto."""
_EXTERNAL_DATA, _LOCATION = 13, 14


def read_network(path: Path | str) -> bytes:
    """Content of the file, unless a tensor refers to another file. Raises ``ArtifactMismatch`` and ``OSError``."""
    content = read_regular(path, LARGEST_NETWORK)
    try:
        refuse_external(content)
    except BadGraph as error:
        told = f"is not loaded: {error}; write one ONNX file with all tensors"
        raise ArtifactMismatch(str(path), told) from None
    return content


def refuse_external(content: bytes) -> None:
    """Raise ``BadGraph`` where a tensor refers to another file, or the file is no ONNX graph."""
    waiting = [("model", memoryview(content), 0)]
    graphs = 0
    while waiting:
        kind, message, depth = waiting.pop()
        if depth > _DEEPEST:
            raise BadGraph("nested too deeply")
        graphs += kind == "graph"
        inner = _INNER[kind]
        for each in fields(message, lists=kind == "attribute"):
            if kind == "tensor" and (each.number == _EXTERNAL_DATA or (each.number == _LOCATION and each.value)):
                raise BadGraph("a tensor refers to another file")
            if each.number in inner and each.kind == BYTES:
                waiting.append((inner[each.number], each.content, depth + 1))
    if not graphs:
        raise BadGraph("contains no graph")
