"""Merge cost tables with different models or kinds of units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.costs.manifest import Manifest
from mirage.domain.errors import MirageError
from mirage.domain.request import CostTable

if TYPE_CHECKING:
    from collections.abc import Sequence

FIGURES = ("seconds", "compute_seconds", "joules", "dram_bytes")


class CannotMerge(MirageError):
    """Tables that contradict each other; the text names the entry."""


def merge_tables(tables: Sequence[CostTable]) -> CostTable:
    """One table of all models and kinds. If no table has a pair of them, the kind cannot run the model (NaN).

    Raises ``CannotMerge`` where two tables split a model differently, or both have a pair.
    """
    pieces: dict[str, tuple[str, ...]] = {}
    for table in tables:
        for model, names in _pieces(table).items():
            if pieces.setdefault(model, names) != names:
                raise CannotMerge(f"{model}: the tables split it into different segments")
    models, kinds = tuple(pieces), tuple(dict.fromkeys(kind for table in tables for kind in table.kinds))
    first = np.cumsum([0, *(len(pieces[model]) for model in models)]).astype(np.int32)
    begins = dict(zip(models, first[:-1].tolist(), strict=True))
    figures = {name: np.full((int(first[-1]), len(kinds)), np.nan) for name in FIGURES}
    for table in tables:
        _fill(table, begins, kinds, figures)
    names = tuple(piece for model in models for piece in pieces[model])
    return CostTable(models=models, first=first, pieces=names, kinds=kinds, **figures)


def merge_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """Sources of the parts. All models of a kind must come from one source."""
    merged = manifests[0]
    for other in manifests[1:]:
        units = dict(merged.units)
        for kind, unit in other.units.items():
            before = units.get(kind, unit)
            if unit.model_copy(update={"measured": before.measured}) != before:
                raise CannotMerge(f"{kind}: the tables measured it on different hardware or with other settings")
            units[kind] = before.model_copy(update={"measured": {**before.measured, **unit.measured}})
        tools = dict.fromkeys([*merged.made_by.split("; "), *other.made_by.split("; ")])
        merged = Manifest(made_by="; ".join(tools), models={**merged.models, **other.models}, units=units)
    return merged


def _pieces(table: CostTable) -> dict[str, tuple[str, ...]]:
    spans = zip(table.models, table.first[:-1], table.first[1:], strict=True)
    return {model: table.pieces[begin:end] for model, begin, end in spans}


def _fill(
    table: CostTable, begins: dict[str, int], kinds: tuple[str, ...], figures: dict[str, np.ndarray]
) -> None:
    for model, begin, end in zip(table.models, table.first[:-1], table.first[1:], strict=True):
        to = begins[model]
        for column, kind in enumerate(table.kinds):
            there = (slice(to, to + end - begin), kinds.index(kind))
            if np.isnan(table.seconds[begin:end, column]).all():
                continue
            if not np.isnan(figures["seconds"][there]).all():
                raise CannotMerge(f"{model} on {kind} is in two of the tables")
            for name, figure in figures.items():
                figure[there] = getattr(table, name)[begin:end, column]
