"""Tensors of the Open Inference Protocol (KServe v2): in JSON, or as plain bytes behind it.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol and its binary extension.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Tensors whose bytes follow one another. Raises ``Refusal`` where they do not fit."""
    tensors, at = [], 0
    for document in documents:
        found = described(document)
        size = _elements(found) * DATATYPES[found.datatype].itemsize
        tensors.append(Tensor(found.name, found.datatype, found.shape, data[at : at + size]))
        at += size
    if at != len(data):
        raise Refusal(400, f"the tensors need {at} bytes, {len(data)} were sent")
    return tensors


def from_json(document: dict[str, Any]) -> Tensor:
    """A tensor with its numbers in JSON, flat or nested. Raises ``Refusal``."""
    found = described(document)
    data = document.get("data")
    array = _numbers(found, _flat(found.name, data if isinstance(data, list) else [data]))
    if array.size != _elements(found):
        raise Refusal(
            400,
            f"input {found.name!r}: shape {list(found.shape)} has {_elements(found)} elements, data {array.size}",
        )
    return Tensor(found.name, found.datatype, found.shape, Tensor.of(found.name, array).data)


def described(document: object) -> Signature:
    """Name, datatype and shape of a tensor, all within their bounds. Raises ``Refusal``."""
    if not isinstance(document, dict):
        raise Refusal(400, "inputs: expected objects with name, datatype and shape")
    name, datatype, shape = document.get("name"), document.get("datatype"), document.get("shape")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise Refusal(400, f"inputs: expected a name of at most {LONGEST_NAME} characters")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise Refusal(
            400, f"input {name!r}: unknown datatype {shown(datatype)} (choose from {', '.join(DATATYPES)})"
        )
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(map(_is_size, shape)):
        raise Refusal(
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
    """Raise ``Refusal`` where a model does not take these."""
    wanted, given = {each.name for each in inputs}, [tensor.name for tensor in tensors]
    if sorted(given) != sorted(wanted):
        names = ", ".join(given)
        raise Refusal(400, f"the model's inputs are {', '.join(sorted(wanted))}; given: {names[:LONGEST_NAME]}")
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


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_SIZE


def _elements(tensor: Signature) -> int:
    """Number of elements of a shape. Raises ``Refusal`` before a product grows long."""
    elements = 1
    for size in tensor.shape:
        elements *= max(1, size)
        if elements > _LARGEST_SIZE:
            raise Refusal(400, f"input {tensor.name!r}: shape has more than {_LARGEST_SIZE} elements")
    return 0 if 0 in tensor.shape else elements


def _flat(name: str, data: list[Any]) -> list[Any]:
    """The values of nested lists, in order. Raises ``Refusal`` where rows differ.

    Done level by level without numpy, which would pad every element to the longest text.
    """
    for _ in range(_MOST_DIMENSIONS):
        if list not in set(map(type, data)):
            return data
        if set(map(type, data)) != {list} or len(set(map(len, data))) > 1:
            raise Refusal(400, f"input {name!r}: the rows of data differ in length")
        data = list(chain.from_iterable(data))
    raise Refusal(400, f"input {name!r}: data is nested more than {_MOST_DIMENSIONS} deep")


def _numbers(tensor: Signature, numbers: list[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers of a datatype, neither rounded nor wrapped around."""
    name, datatype, dtype = tensor.name, tensor.datatype, DATATYPES[tensor.datatype]
    if not set(map(type, numbers)) <= _KINDS[dtype.kind]:
        raise Refusal(400, f"input {name!r}: data does not hold numbers of datatype {datatype}")
    beyond = Refusal(400, f"input {name!r}: a number in data is out of the range of {datatype}")
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
