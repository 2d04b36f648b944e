"""Who comes first: the keys of policies that only order requests, the smallest first."""

from __future__ import annotations

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.look import Draft, Look


@compiled
def arrivals(look: Look, count: int, draft: Draft) -> None:
    """FCFS."""
    for i in range(count):
        draft.key[i] = i


@compiled
def deadlines(look: Look, count: int, draft: Draft) -> None:
    """EDF."""
    for i in range(count):
        draft.key[i] = look.deadline[look.ready[i]]


@compiled
def laxities(look: Look, count: int, draft: Draft) -> None:
    """LLF: deadline - now - remaining; now is the same for all."""
    for i in range(count):
        slot = look.ready[i]
        draft.key[i] = look.deadline[slot] - look.least[look.piece[slot]]


@compiled
def remainders(look: Look, count: int, draft: Draft) -> None:
    """SJF by what remains."""
    for i in range(count):
        draft.key[i] = look.least[look.piece[look.ready[i]]]


@compiled
def chances(look: Look, count: int, draft: Draft, seed: float) -> None:
    """Uniform numbers: of a request, its piece and the seed alone, so that they depend on nothing else."""
    for i in range(count):
        slot = look.ready[i]
        draft.key[i] = uniform(look.number[slot], look.piece[slot], seed)


@inlined
def uniform(number: int, piece: int, seed: float) -> float:
    """In [0, 1), by the finaliser of MurmurHash3, 32 bits: constants so that numba keeps to 64-bit integers."""
    mixed = (number * 2654435761 + piece * 40503 + int(seed) * 97531 + 12345) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) / 4294967296.0


@compiled
def tokens(look: Look, now: float, count: int, draft: Draft) -> None:
    """PREMA's: the shortest of those whose tokens reach the threshold; the others behind them.

    Tokens are weight x (1 + seconds waited / seconds needed): what PREMA adds up at every event, the weight times
    the normalised slowdown since the last one, in closed form, so that it does not matter how often it is asked.
    """
    most = 0.0
    for i in range(count):
        draft.key[i] = _tokens_of(look, now, look.ready[i])
        most = max(most, draft.key[i])
    threshold = _threshold(most)
    for i in range(count):
        rest = look.least[look.piece[look.ready[i]]]
        draft.key[i] = rest if draft.key[i] >= threshold else rest + BEHIND


BEHIND = 1e12
"""Seconds: more than any request needs."""


@inlined
def _tokens_of(look: Look, now: float, slot: int) -> float:
    waited = now - look.arrival[slot] - look.served[slot]
    return look.weight[slot] * (1.0 + max(waited, 0.0) / look.least[look.first[look.model[slot]]])


@inlined
def _threshold(most: float) -> float:
    if most >= 9.0:
        return 9.0
    return 3.0 if most >= 3.0 else min(most, 1.0)


@compiled
def mark_late(look: Look, now: float, count: int, draft: Draft, matters: bool) -> None:
    """Who would miss the deadline even alone, each piece on its fastest kind; nobody, unless it ``matters``."""
    for i in range(count):
        slot = look.ready[i]
        draft.late[i] = matters and now + look.least[look.piece[slot]] > look.deadline[slot]
