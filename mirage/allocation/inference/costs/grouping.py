"""Join layers to fewer, longer segments, so that fewer decisions are needed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mirage.domain.request import CostTable


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
