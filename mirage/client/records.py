"""Lists of records that can be converted to pandas frames, if pandas is installed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.client.errors import Missing

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
