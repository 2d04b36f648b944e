"""Tensors as the Open Inference Protocol (KServe v2) names them: in JSON, or as plain bytes behind it.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol and its binary extension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage.allocation.inference.serving.refusals import Refusal

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
_KINDS = {"f": "fiu", "i": "iuO", "u": "iuO", "b": "b"}
"""What JSON may hold for a tensor of each kind."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What one input or output of a model looks like; -1: any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """As the protocol shows it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Signature:
        """The same read again."""
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
        """Without its bytes."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The same bytes as an array."""
        return np.frombuffer(self.data, DATATYPES[self.datatype]).reshape(self.shape)

    @classmethod
    def of(cls, name: str, array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
        """An array's bytes; not copied where they lie row by row."""
        whole = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        data = whole.reshape(-1).data.cast("B") if whole.size else memoryview(b"")
        return cls(name, NAMES[whole.dtype], array.shape, data)


def cut(documents: list[dict[str, Any]], data: memoryview) -> list[Tensor]:
    """Tensors whose bytes lie one after the other. Raises ``Refusal`` where they do not fit."""
    tensors, at = [], 0
    for document in documents:
        name, datatype, shape = _described(document)
        size = math.prod(shape) * DATATYPES[datatype].itemsize
        tensors.append(Tensor(name, datatype, shape, data[at : at + size]))
        at += size
    if at != len(data):
        raise Refusal(400, f"the tensors need {at} bytes, {len(data)} came")
    return tensors


def from_json(document: dict[str, Any]) -> Tensor:
    """A tensor whose numbers stand in JSON, flat or nested. Raises ``Refusal``."""
    name, datatype, shape = _described(document)
    array = _numbers(name, datatype, document.get("data"))
    if array.size != math.prod(shape):
        raise Refusal(
            400, f"input {name!r}: shape {list(shape)} has {math.prod(shape)} elements, data {array.size}"
        )
    return Tensor(name, datatype, shape, Tensor.of(name, array).data)


def check_signature(tensors: list[Tensor], inputs: tuple[Signature, ...]) -> None:
    """Raises ``Refusal`` where a model does not take these."""
    wanted, given = {each.name for each in inputs}, [tensor.name for tensor in tensors]
    if sorted(given) != sorted(wanted):
        raise Refusal(
            400, f"the model's inputs are {', '.join(sorted(wanted))}; given: {', '.join(given) or 'none'}"
        )
    by_name = {each.name: each for each in inputs}
    for tensor in tensors:
        signature = by_name[tensor.name]
        if tensor.datatype != signature.datatype:
            raise Refusal(400, f"input {tensor.name!r} is {signature.datatype}, not {tensor.datatype}")
        if not _fits(tensor.shape, signature.shape):
            expected = list(signature.shape)
            raise Refusal(400, f"input {tensor.name!r} has shape {list(tensor.shape)}, expected {expected}")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, s) for s, w in zip(shape, wanted, strict=True))


def _described(document: object) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(document, dict):
        raise Refusal(400, "inputs: each is an object with name, datatype and shape")
    name, datatype, shape = document.get("name"), document.get("datatype"), document.get("shape")
    if not isinstance(name, str):
        raise Refusal(400, "inputs: one has no name")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise Refusal(400, f"input {name!r}: datatype {datatype!r} is none of {', '.join(DATATYPES)}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise Refusal(400, f"input {name!r}: shape is a list of whole numbers of 0 and more")
    return name, datatype, tuple(shape)


def _numbers(name: str, datatype: str, data: object) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers that a datatype holds as they are; nothing is cut off or wrapped around."""
    dtype = DATATYPES[datatype]
    try:
        found = _read(data if isinstance(data, list) else [data], dtype)
    except ValueError:
        raise Refusal(400, f"input {name!r}: the rows of data differ in length") from None
    if found.size and found.dtype.kind not in _KINDS[dtype.kind]:
        raise Refusal(400, f"input {name!r}: data does not hold numbers of datatype {datatype}")
    if dtype.kind in "iu" and found.size and not _within(found, dtype):
        raise Refusal(400, f"input {name!r}: a number in data is beyond {datatype}")
    with np.errstate(over="ignore"):
        cast = found.astype(dtype)
    if dtype.kind == "f" and not np.array_equal(np.isfinite(cast), np.isfinite(found)):
        raise Refusal(400, f"input {name!r}: a number in data is beyond {datatype}")
    return cast


def _read(data: list[Any], dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Flat. Raises ``ValueError`` for rows of several lengths."""
    found = np.asarray(data).reshape(-1)
    if dtype.kind in "iu" and found.dtype.kind in "fO":
        # Of whole numbers on both sides of 2**63 numpy makes floats, which do not hold them.
        exact = np.asarray(data, dtype=object).reshape(-1)
        if all(type(each) is int for each in exact):
            return exact
    return found


def _within(found: np.ndarray[Any, np.dtype[Any]], dtype: np.dtype[Any]) -> bool:
    bounds = np.iinfo(dtype)
    return bounds.min <= int(found.min()) and int(found.max()) <= bounds.max
