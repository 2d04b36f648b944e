"""Lists of what the daemon tells that become pandas' frames, where pandas is installed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.client.errors import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Records(list[T]):
    """A list; ``to_frame`` makes a table of it."""

    def to_frame(self) -> Any:
        """A ``pandas.DataFrame``, one row an item; fields of nested items are columns such as ``request.nodes``.

        What a field lists (a chain's links) stays a list in its cell. Raises ``Missing`` without pandas.
        """
        try:
            import pandas as pd
        except ImportError:
            raise Missing("frames need pandas: pip install pandas") from None
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
