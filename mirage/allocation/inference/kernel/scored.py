"""The matcher of policies whose scores are kept by request: who begins now, and where, compiled.

All requests, those that run included, take their places on a time line of every unit, one after the other: the
smallest of ``deadline + (density - reach x priority) x seconds left / weight`` first (density 0: least laxity
but for a constant; 1: by deadline less what is won by parallel kinds; large: shortest first). Each goes to the
unit with the least ``wait + seconds to the end + (exp(-affinity) - 1) x seconds of the next piece + thrift x
bytes of the next piece / bandwidth``, of those on which it keeps its deadline with a margin for what may still
come: what is shared and short has a price. It is held for the piece and a part of what follows. Who gets a unit
that is free begins, unless it is to hold: then it waits as long as with it ``hold x`` the bandwidth that is
wanted would exceed what there is. Who would rather have a unit that is busy waits for it. Who finds no unit to be
in time on lets the others pass (as Moore's rule for the most jobs in time drops one, Management Science 15(1),
1968, but without looking back), and gets what is left over, the shortest first: of units, and of bandwidth, unless
nobody else wants any. With scores of zero this is a plain list scheduler with admission.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, DispatchDraft, Look
from mirage.allocation.inference.kernel.sharing import want, wanted_by_all

SETTINGS = ("density", "reach", "hopping", "crowding", "holding", "thrift", "margin", "leaving")
"""What stands in ``parameters``; see ``decide_scored``, ``_key``, ``_left``, ``_held`` and ``_best_unit``."""
DENSITY, REACH, HOPPING, CROWDING, HOLDING, THRIFT, MARGIN, LEAVING = range(len(SETTINGS))

PRIORITY, HOLD, CAUTION, KINDS = range(4)
"""Columns of scores: the last is the first of an affinity to each kind; ``CAUTION`` is added to the margin."""

LATE, DONE = 1e12, 1e18
"""Keys from the first on are of requests that cannot be in time, from the second on of those that have a place."""
EXAMINED = 4
"""For each unit so many requests find their places; behind them only what is left over is given away."""


@compiled
def decide_scored(
    parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, count: int, draft: DispatchDraft
) -> int:
    """As ``deciding.decide``; ``kept`` (S, KINDS + K): the scores of each slot's request."""
    free = _begin(look, now, draft)
    if count == 0 or free == 0:
        return 0
    wanted = wanted_by_all(look.drawn)
    stretch = 1.0 + parameters[CROWDING] * max(wanted / look.bandwidth - 1.0, 0.0)
    for i in range(count):
        draft.key[i] = _key(parameters, kept, look, now, look.ready[i], look.piece[look.ready[i]])
    begun, wanted = _in_time(parameters, kept, look, now, count, draft, free, stretch, wanted)
    return _left_over(look, now, count, draft, begun, wanted, parameters[LEAVING] * look.bandwidth)


@compiled
def _begin(look: Look, now: float, draft: DispatchDraft) -> int:
    """When units are free at the earliest; how many are now."""
    free = 0
    for unit in range(len(look.kind)):
        draft.available[unit] = max(look.free_at[unit], now)
        free += look.running[unit] < 0 and look.free_at[unit] <= now
    return free


@inlined
def _key(parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, slot: int, piece: int) -> float:
    least = look.least[piece] / look.weight[slot]
    if look.deadline[slot] - now < look.least[piece] or look.deadline[slot] >= LATE:
        return LATE + least
    return look.deadline[slot] + (parameters[DENSITY] - parameters[REACH] * kept[slot, PRIORITY]) * least


@compiled
def _in_time(
    parameters: np.ndarray,
    kept: np.ndarray,
    look: Look,
    now: float,
    count: int,
    draft: DispatchDraft,
    free: int,
    stretch: float,
    wanted: float,
) -> tuple[int, float]:
    """How many begin, and what is wanted with them."""
    begun, placed = 0, np.int64(0)
    for _ in range(EXAMINED * len(look.kind)):
        first = _least_of(draft.key, count)
        unit = _next_running(parameters, kept, look, now, placed, draft.key[first])
        if unit >= 0:
            placed |= np.int64(1) << np.int64(unit)
            _go_on(parameters, look, draft, unit, stretch)
            continue
        if draft.key[first] >= LATE:
            break
        slot = look.ready[first]
        unit = _best_unit(parameters, kept, look, now, slot, draft, stretch)
        if unit < 0:
            draft.key[first] = LATE + look.least[look.piece[slot]] / look.weight[slot]
            continue
        draft.key[first] = DONE
        if look.running[unit] < 0 and draft.available[unit] <= now:
            own = want(look, look.piece[slot], look.kind[unit])
            if wanted > 0.0 and kept[slot, HOLD] * (wanted + own) > look.bandwidth:
                continue
            wanted += own
            draft.ready[begun], draft.unit[begun] = first, unit
            begun += 1
            free -= 1
        draft.available[unit] += stretch * _held(parameters, look, slot, look.kind[unit])
        if free == 0:
            break
    return begun, wanted


@inlined
def _least_of(key: np.ndarray, count: int) -> int:
    best = 0
    for i in range(1, count):
        if key[i] < key[best]:
            best = i
    return best


@inlined
def _next_running(
    parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, placed: int, before: float
) -> int:
    """The unit whose request, its present piece over, comes first of all that have no place yet; -1: none does."""
    best = -1
    for unit in range(min(len(look.kind), 63)):
        slot = look.running[unit]
        if slot < 0 or placed & (np.int64(1) << np.int64(unit)) or _is_last(look, slot):
            continue
        key = _key(parameters, kept, look, look.free_at[unit], slot, look.piece[slot] + 1)
        if key < before and key < LATE:
            best, before = unit, key
    return best


@inlined
def _is_last(look: Look, slot: int) -> bool:
    return look.piece[slot] + 1 >= look.first[look.model[slot] + 1]


@inlined
def _go_on(parameters: np.ndarray, look: Look, draft: DispatchDraft, unit: int, stretch: float) -> None:
    """What runs is expected to stay on its unit to its end."""
    following = look.piece[look.running[unit]] + 1
    rest = look.remaining[following, look.kind[unit]]
    draft.available[unit] += stretch * parameters[HOLDING] * (rest if rest == rest else 0.0)  # noqa: PLR0124 (NaN)


@inlined
def _left(parameters: np.ndarray, look: Look, slot: int, kind: int) -> float:
    """Seconds to the request's end: all on this kind, mixed with the next piece on it, the rest where fastest.

    ``HOPPING`` is the part of the second. NaN where the kind cannot run the next piece.
    """
    piece = look.piece[slot]
    alone = look.seconds[piece, kind]
    hops = alone if _is_last(look, slot) else alone + look.least[piece + 1]
    stays = look.remaining[piece, kind]
    return hops if stays != stays else stays + parameters[HOPPING] * (hops - stays)  # noqa: PLR0124 (NaN)


@inlined
def _held(parameters: np.ndarray, look: Look, slot: int, kind: int) -> float:
    """Seconds for which a unit is taken: the piece, and the part ``HOLDING`` of the rest."""
    alone = look.seconds[look.piece[slot], kind]
    return alone + parameters[HOLDING] * (_left(parameters, look, slot, kind) - alone)


@compiled
def _best_unit(
    parameters: np.ndarray,
    kept: np.ndarray,
    look: Look,
    now: float,
    slot: int,
    draft: DispatchDraft,
    stretch: float,
) -> int:
    """-1: it is in time on none."""
    best, least, piece = -1, INFINITY, look.piece[slot]
    needed = 1.0 + max(parameters[MARGIN] + kept[slot, CAUTION], 0.0)
    for unit in range(len(look.kind)):
        kind = look.kind[unit]
        left = stretch * _left(parameters, look, slot, kind)
        if draft.available[unit] + needed * left <= look.deadline[slot]:
            cost = (
                draft.available[unit]
                - now
                + left
                + parameters[THRIFT] * look.dram_bytes[piece, kind] / look.bandwidth
            )
            cost += (np.exp(-kept[slot, KINDS + kind]) - 1.0) * stretch * look.seconds[piece, kind]
            if cost < least:
                best, least = unit, cost
    return best


@compiled
def _left_over(
    look: Look, now: float, count: int, draft: DispatchDraft, begun: int, wanted: float, most: float
) -> int:
    """Units that nobody who can be in time wants, to the others: the smallest key, where its piece ends first.

    Late ones begin only where no more than ``most`` bytes a second are wanted with them, or nothing else is.
    """
    for _ in range(len(look.kind)):
        unit, place = -1, -1
        for candidate in range(len(look.kind)):
            if look.running[candidate] < 0 and draft.available[candidate] <= now:
                chosen = _first_for(look, count, draft, look.kind[candidate], wanted, most)
                if chosen >= 0 and (place < 0 or _sooner(look, draft, chosen, candidate, place, unit)):
                    unit, place = candidate, chosen
        if unit < 0:
            break
        draft.ready[begun], draft.unit[begun] = place, unit
        begun += 1
        wanted += want(look, look.piece[look.ready[place]], look.kind[unit])
        draft.key[place] = DONE
        draft.available[unit] = INFINITY
    return begun


@inlined
def _first_for(look: Look, count: int, draft: DispatchDraft, kind: int, wanted: float, most: float) -> int:
    best = -1
    for i in range(count):
        piece = look.piece[look.ready[i]]
        seconds = look.seconds[piece, kind]
        if draft.key[i] < DONE and seconds == seconds and (best < 0 or draft.key[i] < draft.key[best]):  # noqa: PLR0124
            if draft.key[i] < LATE or wanted == 0.0 or wanted + want(look, piece, kind) <= most:
                best = i
    return best


@inlined
def _sooner(look: Look, draft: DispatchDraft, one: int, here: int, other: int, there: int) -> bool:
    if one != other:
        return draft.key[one] < draft.key[other]
    piece = look.piece[look.ready[one]]
    return look.seconds[piece, look.kind[here]] < look.seconds[piece, look.kind[there]]
