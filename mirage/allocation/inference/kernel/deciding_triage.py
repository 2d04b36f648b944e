"""Triage: who can still be saved, on which unit, and who goes first.

Every unit has a line. By deadline, those that wait join the line in which they end first, and those that run and
have more pieces to come that of their unit, if that is in time (``_seat``). Who would be late sends the largest
of all lines away whose going makes room, if that is larger than itself (``_displace``): Moore's rule (Management
Science 15(1), 1968), which on one unit keeps the most deadlines that can be kept. All is planned again at every
decision: lines are estimates, and a request continues to another unit between two pieces where that is better.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import deciding_units as units
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, DispatchDraft, Look

LENGTH, LINE = range(2)
"""Columns of ``draft.memory``: the seconds that a request takes in its line, and the line's unit."""
NOWHERE, BEGUN = -1.0, -2.0
"""Instead of a unit: in no line; begins now."""
ELSEWHERE = 0.25
"""A request is taken to spend so much of its other pieces on the kinds that are fastest for them, the rest
here."""


@compiled
def triage(look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """As ``deciding.decide``."""
    units.note_available(look, now, draft)
    total = _gather(look, now, count, draft)
    left = units.heapify(draft, total)
    while left > 0:
        left = units.pop(draft, left)
        row = draft.order[left]
        if draft.late[row] == 0 and not _seat(look, now, count, draft, row):
            _displace(look, now, count, draft, row, left + 1, total)
    answers = _begin_firsts(look, now, count, draft, total)
    answers = _begin_others(look, now, count, draft, total, answers)
    return _begin_left_over(look, now, count, draft, answers)


@compiled
def _gather(look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """Rows: the ready requests, then those that run and continue, by unit. How many; their keys are deadlines."""
    for i in range(count):
        _note(look, now, draft, i, look.ready[i], look.piece[look.ready[i]])
    total = count
    for u in range(look.kind.shape[0]):
        if _goes_on(look, u):
            slot = look.running[u]
            _note(look, draft.available[u], draft, total, slot, look.piece[slot] + 1)
            total += 1
    return total


@inlined
def _note(look: Look, earliest: float, draft: DispatchDraft, row: int, slot: int, piece: int) -> None:
    draft.key[row] = look.deadline[slot]
    draft.late[row] = earliest + look.least[piece] > look.deadline[slot]
    draft.start[row] = earliest
    draft.memory[slot, LINE] = NOWHERE


@inlined
def _goes_on(look: Look, unit: int) -> bool:
    slot = look.running[unit]
    return slot >= 0 and look.piece[slot] + 1 < look.first[look.model[slot] + 1]


@inlined
def _slot(look: Look, count: int, row: int) -> int:
    if row < count:
        return look.ready[row]
    unit, seen = -1, count - 1
    while seen < row:
        unit += 1
        seen += _goes_on(look, unit)
    return look.running[unit]


@inlined
def _next_piece(look: Look, count: int, row: int, slot: int) -> int:
    return look.piece[slot] if row < count else look.piece[slot] + 1


@inlined
def _rest(look: Look, piece: int, kind: int) -> float:
    """Seconds to the end of the request from a piece on that is run on this kind; NaN where it cannot be."""
    fastest = INFINITY
    for k in range(look.seconds.shape[1]):
        if look.seconds[piece, k] < fastest:  # noqa: PLR1730 (NaN)
            fastest = look.seconds[piece, k]
    mixed, here = look.least[piece] - fastest + look.seconds[piece, kind], look.remaining[piece, kind]
    return mixed if np.isnan(here) else ELSEWHERE * mixed + (1.0 - ELSEWHERE) * here


@compiled
def _seat(look: Look, now: float, count: int, draft: DispatchDraft, row: int) -> bool:
    """Into the line in which the request ends first, if that is in time; what runs is expected to stay."""
    slot = _slot(look, count, row)
    piece = _next_piece(look, count, row, slot)
    unit, end = -1, INFINITY
    for u in range(look.kind.shape[0]):
        if row >= count and look.running[u] != slot:
            continue
        this = max(draft.available[u], draft.start[row]) + _rest(look, piece, look.kind[u])
        if this <= look.deadline[slot] and this < end:
            unit, end = u, this
    if unit < 0:
        return False
    _join(draft, row, slot, unit, end)
    return True


@inlined
def _join(draft: DispatchDraft, row: int, slot: int, unit: int, end: float) -> None:
    draft.start[row] = max(draft.available[unit], draft.start[row])
    draft.memory[slot, LINE] = unit
    draft.memory[slot, LENGTH] = end - draft.start[row]
    draft.available[unit] = end


@compiled
def _displace(look: Look, now: float, count: int, draft: DispatchDraft, row: int, first: int, total: int) -> None:
    """Into the line from which the largest goes; those are looked at that came before, from ``first`` on."""
    slot = _slot(look, count, row)
    piece = _next_piece(look, count, row, slot)
    most, chosen = look.least[piece] / look.weight[slot], -1
    for at in range(first, total):
        other = draft.order[at]
        if other >= count or draft.memory[look.ready[other], LINE] < 0.0:
            continue
        theirs = look.ready[other]
        size = look.least[look.piece[theirs]] / look.weight[theirs]
        if size > most and _end_without(look, draft, row, piece, theirs) <= look.deadline[slot]:
            most, chosen = size, theirs
    if chosen >= 0:
        unit, end = int(draft.memory[chosen, LINE]), _end_without(look, draft, row, piece, chosen)
        draft.available[unit] -= draft.memory[chosen, LENGTH]
        draft.memory[chosen, LINE] = NOWHERE
        _join(draft, row, slot, unit, end)


@inlined
def _end_without(look: Look, draft: DispatchDraft, row: int, piece: int, other: int) -> float:
    """When a request ends in another's line, were that not there."""
    unit = int(draft.memory[other, LINE])
    begin = max(draft.available[unit] - draft.memory[other, LENGTH], draft.start[row])
    return begin + _rest(look, piece, look.kind[unit])


@compiled
def _begin_firsts(look: Look, now: float, count: int, draft: DispatchDraft, total: int) -> int:
    """On each free unit the first of its line. ``draft.available`` becomes now for those that stay free."""
    for u in range(look.kind.shape[0]):
        draft.available[u] = now if units.is_free(look, now, u) else INFINITY
    answers = 0
    for at in range(total - 1, -1, -1):
        row = draft.order[at]
        if row < count:
            unit = int(draft.memory[look.ready[row], LINE])
            if unit >= 0 and draft.available[unit] <= now:
                answers = _begin(look, draft, answers, row, unit)
    return answers


@inlined
def _begin(look: Look, draft: DispatchDraft, answers: int, row: int, unit: int) -> int:
    draft.memory[look.ready[row], LINE] = BEGUN
    draft.available[unit] = INFINITY
    return units.answer(draft, answers, row, unit)


@compiled
def _begin_others(look: Look, now: float, count: int, draft: DispatchDraft, total: int, answers: int) -> int:
    """On units that are still free, by deadline, who waits for its own and has its piece done here by the time at
    which its own unit would have: nobody is later by it, and what is behind in that line comes earlier.
    """
    for at in range(total - 1, -1, -1):
        row = draft.order[at]
        if row < count and draft.memory[look.ready[row], LINE] >= 0.0:
            slot = look.ready[row]
            piece, own = look.piece[slot], int(draft.memory[slot, LINE])
            unit, end = -1, draft.start[row] + look.seconds[piece, look.kind[own]]
            for u in range(look.kind.shape[0]):
                if draft.available[u] + look.seconds[piece, look.kind[u]] <= end:
                    unit, end = u, draft.available[u] + look.seconds[piece, look.kind[u]]
            if unit >= 0:
                answers = _begin(look, draft, answers, row, unit)
    return answers


@compiled
def _begin_left_over(look: Look, now: float, count: int, draft: DispatchDraft, answers: int) -> int:
    """On units that are still free those in no line, the shortest by weight first, where the piece ends first."""
    while True:
        unit = -1
        for u in range(look.kind.shape[0]):
            if draft.available[u] <= now:
                unit = u
        row = -1 if unit < 0 else _smallest(look, now, count, draft)
        if row < 0:
            return answers
        piece, least = look.piece[look.ready[row]], INFINITY
        for u in range(look.kind.shape[0]):
            if draft.available[u] <= now and look.seconds[piece, look.kind[u]] < least:
                unit, least = u, look.seconds[piece, look.kind[u]]
        answers = _begin(look, draft, answers, row, unit)


@compiled
def _smallest(look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """Of those in no line that some free unit can run."""
    row, least = -1, INFINITY
    for i in range(count):
        slot = look.ready[i]
        if draft.memory[slot, LINE] == NOWHERE:
            size = look.least[look.piece[slot]] / look.weight[slot]
            if size < least and _is_runnable(look, now, draft, look.piece[slot]):
                row, least = i, size
    return row


@inlined
def _is_runnable(look: Look, now: float, draft: DispatchDraft, piece: int) -> bool:
    for u in range(look.kind.shape[0]):
        if draft.available[u] <= now and look.seconds[piece, look.kind[u]] < INFINITY:
            return True
    return False
