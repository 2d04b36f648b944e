"""Records of JSON documents: dataclasses, and lists of them that become pandas frames if pandas is installed.

Unknown fields of a document are ignored, missing ones get their defaults.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mirage.client.errors import DaemonUnreachable, Missing

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Records(list[T]):
    """List of records; ``to_frame`` converts it to a table."""

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row per item; nested fields become columns such as
        ``request.nodes``.

        A list within an item (a chain's links) stays a list in its cell. Raises ``Missing`` without pandas.
        """
        try:
            import pandas as pd
        except ImportError:
            raise Missing("pandas is not installed; install it: pip install pandas") from None
        return pd.DataFrame([dict(_cells(item, "")) for item in self])


def _cells(item: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in _fields(item):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _cells(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _fields(item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict):
        yield from item.items()
        return
    for field in dataclasses.fields(item):
        yield field.name, getattr(item, field.name)


_KNOWN: dict[Any, dict[str, Any]] = {}
"""Field types by class, cached because resolving them is slower than reading a document."""


def read(kind: type[T], document: Any) -> T:
    """Convert a document of a daemon of any version; only fields without a default are required.

    Raises ``DaemonUnreachable`` for anything else.
    """
    if not isinstance(document, dict):
        raise DaemonUnreachable(
            f"expected a {kind.__name__}, got {str(document)[:80]!r}; check that the server is a Mirage daemon"
        )
    try:
        return kind(
            **{name: _value(hint, document[name]) for name, hint in _hints(kind).items() if name in document}
        )
    except (TypeError, ValueError) as error:
        raise DaemonUnreachable(f"{kind.__name__} of an unknown version: {error}") from None


def read_all(kind: type[T], documents: Any) -> list[T]:
    """Convert a list of documents."""
    if not isinstance(documents, list | None):
        raise DaemonUnreachable(
            f"expected a list of {kind.__name__}, got {str(documents)[:80]!r}; check that the server is a Mirage "
            "daemon"
        )
    return [read(kind, document) for document in documents or ()]


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _KNOWN:
        _KNOWN[kind] = _resolved(kind)
    return _KNOWN[kind]


def _resolved(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]))
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _value(hint: Any, value: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(next(arm for arm in inner if arm is not type(None)), value)
    if origin in (list, tuple, Records):
        return origin(_value(inner[0], item) for item in value or ())
    if hint is datetime:
        return datetime.fromisoformat(value) if value else None
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, value)
    return value
