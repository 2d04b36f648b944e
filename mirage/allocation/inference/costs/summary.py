"""Costs of whole models from a cost table: time, energy, and the fastest kind of unit by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirage.domain.request import CostTable


@dataclass(frozen=True, slots=True)
class ModelOnKind:
    """A whole model on one kind of unit, alone. NaN where the kind cannot run it."""

    model: str
    kind: str
    pieces: int
    seconds: float
    compute_share: float
    """Part of the seconds that would remain with an infinitely fast shared memory."""
    joules: float
    bytes_a_second: float
    fastest: int
    """Segments that no kind runs faster (all kinds of equal speed count them)."""


def summarise(table: CostTable) -> list[ModelOnKind]:
    """Summaries by model, then by kind."""
    best = np.nanmin(table.seconds, axis=1, keepdims=True)
    return [
        _one(table, model, kind, best) for model in range(len(table.models)) for kind in range(len(table.kinds))
    ]


def _one(table: CostTable, model: int, kind: int, best: np.ndarray) -> ModelOnKind:
    rows = slice(table.first[model], table.first[model + 1])
    seconds = float(table.seconds[rows, kind].sum())
    return ModelOnKind(
        model=table.models[model],
        kind=table.kinds[kind],
        pieces=int(rows.stop - rows.start),
        seconds=seconds,
        compute_share=float(table.compute_seconds[rows, kind].sum()) / seconds,
        joules=float(table.joules[rows, kind].sum()),
        bytes_a_second=float(table.dram_bytes[rows, kind].sum()) / seconds,
        fastest=int((table.seconds[rows, kind] == best[rows, 0]).sum()),
    )
