"""Operations on cost tables: join layers to longer segments, merge tables, summarise models."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.costs.tables import CostManifest
from mirage.domain.errors import MirageError
from mirage.domain.inference import CostTable

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def merge_manifests(manifests: Sequence[CostManifest]) -> CostManifest:
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
        merged = CostManifest(made_by="; ".join(tools), models={**merged.models, **other.models}, units=units)
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


def group_pieces(table: CostTable, most: int) -> CostTable:
    """The same table with at most this many segments per model, split where the work divides most evenly.

    A joined segment costs the sum of its layers, and only kinds that can run all of its layers can run it.
    Cuts lie where the work so far, as the mean over kinds of each kind's share, is nearest to an even division.
    """
    if most < 1:
        raise ValueError(f"a model needs at least one segment, not {most}")
    starts = [
        begin + offset
        for begin, end in zip(table.first[:-1], table.first[1:], strict=True)
        for offset in _cuts(table.seconds[begin:end], most)
    ]
    first = np.searchsorted(starts, table.first).astype(np.int32)
    bounds = [*starts, len(table.pieces)]
    return CostTable(
        models=table.models,
        first=first,
        pieces=tuple(_name(table.pieces[a:b]) for a, b in pairwise(bounds)),
        kinds=table.kinds,
        seconds=np.add.reduceat(table.seconds, starts),
        compute_seconds=np.add.reduceat(table.compute_seconds, starts),
        joules=np.add.reduceat(table.joules, starts),
        dram_bytes=np.add.reduceat(table.dram_bytes, starts),
    )


def _cuts(seconds: np.ndarray, most: int) -> list[int]:
    """First rows of the groups of one model."""
    if len(seconds) <= most:
        return list(range(len(seconds)))
    able = seconds[:, ~np.isnan(seconds).any(axis=0)]
    share = (able / able.sum(axis=0)).mean(axis=1) if able.size else np.full(len(seconds), 1 / len(seconds))
    done = np.concatenate([[0.0], np.cumsum(share)])
    nearest = [int(np.abs(done[1:-1] - cut / most).argmin()) + 1 for cut in range(1, most)]
    return [0, *sorted(set(nearest))]


def _name(pieces: tuple[str, ...]) -> str:
    return pieces[0] if len(pieces) == 1 else f"{pieces[0]}..{pieces[-1]}"
