"""Frozen dataclasses as JSON documents, and back.

A field that an older document lacks takes its default; a field or a word that this version does not know is
rejected, because leaving it out would change what was stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from mirage.documentreading import faults_of, parse_own_json
from mirage.domain.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import DTypeLike

T = TypeVar("T")


def plain_values(adapter: TypeAdapter[T], value: T) -> Any:
    """``value`` as dictionaries, lists, texts and numbers."""
    return adapter.dump_python(value, warnings=False)


def to_text(values: Any) -> str:
    """Plain values as JSON in ASCII: exact for every text, also one with bytes that are no UTF-8."""
    return json.dumps(values, separators=(",", ":"), default=_plain)


def from_text(adapter: TypeAdapter[T], text: str, where: str) -> T:
    """The value of a document. Raises ``ConfigError`` that names ``where`` and the field."""
    return from_values(adapter, loaded(text, where), where)


def loaded(text: str, where: str) -> dict[str, Any]:
    """The plain values of a document. Raises ``ConfigError``."""
    try:
        document = parse_own_json(text)
    except (ValueError, TypeError) as error:  # SQLite keeps a number in a column of texts
        raise ConfigError(where, f"the stored document is damaged ({error}); restore a backup") from None
    if not isinstance(document, dict):
        raise ConfigError(where, "the stored document is damaged (it is no object); restore a backup")
    return document


def from_row(adapter: TypeAdapter[T], row: Mapping[Any, Any], where: str) -> T:
    """The value of a row's columns. Raises ``StoreUnavailable`` for what no Mirage has stored there."""
    try:
        return adapter.validate_python(dict(row))
    except ValidationError as error:
        raise StoreUnavailable(f"{where}: a damaged row: {faults_of(error)[0]}; restore a backup") from None


def whole_numbers(cells: Sequence[Any], kind: DTypeLike, where: str) -> np.ndarray[Any, Any]:
    """Cells, or rows of them, as an array. Raises ``StoreUnavailable`` where one is something else."""
    try:
        return np.array(cells, dtype=kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreUnavailable(f"{where}: a damaged row: {error}; restore a backup") from None


def from_values(adapter: TypeAdapter[T], values: Any, where: str) -> T:
    """The value of what ``plain_values`` gave. Raises ``ConfigError`` that names ``where`` and the field."""
    try:
        return adapter.validate_python(values, extra="forbid")
    except ValidationError as error:
        raise ConfigError(
            where, f"{_first_fault(error)}; it was stored by another, newer Mirage: install that"
        ) from None


def _plain(value: object) -> int | float | list[object]:
    """Numbers taken out of columns are numpy's own; sets have no place in JSON."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, np.integer | np.floating):
        number: int | float = value.item()
        return number
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _first_fault(error: ValidationError) -> str:
    fault = faults_of(error)[0]
    unknown = fault.kind == "unexpected_keyword_argument"
    return f"{fault.key or 'document'}: {'a field unknown to this version' if unknown else fault.said}"


def _dotted(parts: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in parts) or "document"
