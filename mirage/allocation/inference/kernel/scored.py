"""The matcher of policies whose scores are kept by request: who begins now, and where, compiled.

All requests, those that run included, take their places on a time line of every unit, one after the other: the
smallest of ``deadline + (density - reach x priority) x seconds left / weight`` first (density 0: least laxity
but for a constant; 1: by deadline less what is won by parallel kinds; large: shortest first). Each goes to the
unit with the least ``wait + seconds to the end x exp(-affinity)``, of those on which it keeps its deadline. It
is held for the piece and a part of what follows. Who gets a unit that is free begins; who would rather have one
that is busy waits for it. Who finds no unit to be in time on lets the others pass (as Moore's rule for the most
jobs in time drops one, Management Science 15(1), 1968, but without looking back), and gets what is left over,
the shortest first. With scores of zero this is a plain list scheduler with admission.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.look import INFINITY, Draft, Look

DENSITY, REACH, HOPPING, CROWDING, HOLDING = range(5)
"""Places in ``parameters``; see ``_key``, ``_left``, ``_stretch`` and ``_held``."""
SETTINGS = 5

LATE, DONE = 1e12, 1e18
"""Keys from the first on are of requests that cannot be in time, from the second on of those that have a place."""
EXAMINED = 4
"""For each unit so many requests find their places; behind them only what is left over is given away."""


@compiled
def decide_scored(
    parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, count: int, draft: Draft
) -> int:
    """As ``deciding.decide``; ``kept`` (S, 1 + U): the priority of each slot's request, and its affinities."""
    free = _begin(look, now, draft)
    if count == 0 or free == 0:
        return 0
    stretch = _stretch(look, parameters[CROWDING])
    for i in range(count):
        draft.key[i] = _key(parameters, kept, look, now, look.ready[i], look.piece[look.ready[i]])
    begun = _in_time(parameters, kept, look, now, count, draft, free, stretch)
    return _left_over(look, now, count, draft, begun)


@compiled
def _begin(look: Look, now: float, draft: Draft) -> int:
    """When units are free at the earliest; how many are now."""
    free = 0
    for unit in range(len(look.kind)):
        draft.available[unit] = max(look.free_at[unit], now)
        free += look.running[unit] < 0 and look.free_at[unit] <= now
    return free


@inlined
def _stretch(look: Look, crowding: float) -> float:
    """How much longer pieces take where more bandwidth is wanted than there is; ``crowding`` 0: not thought of."""
    wanted = 0.0
    for unit in range(len(look.kind)):
        wanted += look.drawn[unit]
    return 1.0 + crowding * max(wanted / look.bandwidth - 1.0, 0.0)


@inlined
def _key(parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, slot: int, piece: int) -> float:
    least = look.least[piece] / look.weight[slot]
    if look.deadline[slot] - now < look.least[piece] or look.deadline[slot] >= LATE:
        return LATE + least
    return look.deadline[slot] + (parameters[DENSITY] - parameters[REACH] * kept[slot, 0]) * least


@compiled
def _in_time(
    parameters: np.ndarray,
    kept: np.ndarray,
    look: Look,
    now: float,
    count: int,
    draft: Draft,
    free: int,
    stretch: float,
) -> int:
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
        if look.running[unit] < 0 and draft.available[unit] <= now:
            draft.ready[begun], draft.unit[begun] = first, unit
            begun += 1
            free -= 1
        draft.available[unit] += stretch * _held(parameters, look, slot, look.kind[unit])
        draft.key[first] = DONE
        if free == 0:
            break
    return begun


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
def _go_on(parameters: np.ndarray, look: Look, draft: Draft, unit: int, stretch: float) -> None:
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
    parameters: np.ndarray, kept: np.ndarray, look: Look, now: float, slot: int, draft: Draft, stretch: float
) -> int:
    """-1: it is in time on none."""
    best, least = -1, INFINITY
    for unit in range(len(look.kind)):
        left = stretch * _left(parameters, look, slot, look.kind[unit])
        if draft.available[unit] + left <= look.deadline[slot]:
            cost = draft.available[unit] - now + left * np.exp(-kept[slot, 1 + unit])
            if cost < least:
                best, least = unit, cost
    return best


@compiled
def _left_over(look: Look, now: float, count: int, draft: Draft, begun: int) -> int:
    """Units that nobody who can be in time wants, to the others: the smallest key, where its piece ends first."""
    for _ in range(len(look.kind)):
        unit, place = -1, -1
        for candidate in range(len(look.kind)):
            if look.running[candidate] < 0 and draft.available[candidate] <= now:
                chosen = _first_for(look, count, draft, look.kind[candidate])
                if chosen >= 0 and (place < 0 or _sooner(look, draft, chosen, candidate, place, unit)):
                    unit, place = candidate, chosen
        if unit < 0:
            break
        draft.ready[begun], draft.unit[begun] = place, unit
        begun += 1
        draft.key[place] = DONE
        draft.available[unit] = INFINITY
    return begun


@inlined
def _first_for(look: Look, count: int, draft: Draft, kind: int) -> int:
    best = -1
    for i in range(count):
        seconds = look.seconds[look.piece[look.ready[i]], kind]
        if draft.key[i] < DONE and seconds == seconds and (best < 0 or draft.key[i] < draft.key[best]):  # noqa: PLR0124
            best = i
    return best


@inlined
def _sooner(look: Look, draft: Draft, one: int, here: int, other: int, there: int) -> bool:
    if one != other:
        return draft.key[one] < draft.key[other]
    piece = look.piece[look.ready[one]]
    return look.seconds[piece, look.kind[here]] < look.seconds[piece, look.kind[there]]
