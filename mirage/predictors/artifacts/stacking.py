"""Joins several tables, to train on several periods or sizes of a cluster."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.features.table import Table


def stacked_tables(tables: Sequence[Table]) -> Table:
    """Return all handovers, table by table, with the origin of the first table.

    Raises ``ConfigError`` for tables of other features or another number of submit times.
    """
    first = tables[0]
    for table in tables:
        if table.schema != first.schema or table.submit.shape[1:] != first.submit.shape[1:]:
            told = f"{table.schema.name}, {table.submit.shape[1]} submit times"
            wanted = f"{first.schema.name}, {first.submit.shape[1]}"
            raise ConfigError("tables", f"cannot be put together: one has {told}, another {wanted}")
    names = [f.name for f in fields(first) if isinstance(getattr(first, f.name), np.ndarray)]
    joined: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    return replace(first, **joined)
