"""Compiled policies, told apart by a number: what begins now, and on which unit.

Those that score pairs of a request and a unit are here as well: Herald-like, Planaria-like, DREAM's score.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import deciding_genes as genes
from mirage.allocation.inference.kernel import deciding_triage as triage
from mirage.allocation.inference.kernel import deciding_units as keys
from mirage.allocation.inference.kernel import deciding_units as units
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, DispatchDraft, Look

SLIGHT = 1e-3
"""Of what a request needs: slack below it counts as this much, so that scores stay finite and positive."""


@compiled
def herald(look: Look, now: float, count: int, draft: DispatchDraft, balance: float) -> int:
    """Requests by arrival, each to its best unit of those that end it within ``1 + balance`` x the least time.

    Best is the least product of energy and delay; of units with the same one, that which is free first. Busy units
    count from when they are free: a request waits for one.
    """
    free = units.note_available(look, now, draft)
    answers, left = 0, units.heapify(draft, count)
    while left > 0 and free > 0:
        left = units.pop(draft, left)
        row = draft.order[left]
        piece = look.piece[look.ready[row]]
        unit = _best_balanced(look, now, draft, piece, balance)
        if unit < 0:
            continue
        if draft.available[unit] <= now:
            answers = units.answer(draft, answers, row, unit)
            free -= 1
        draft.available[unit] += look.seconds[piece, look.kind[unit]]
    return answers


@inlined
def _best_balanced(look: Look, now: float, draft: DispatchDraft, piece: int, balance: float) -> int:
    _, end = units.soonest(look, draft, piece)
    bound, best, least = now + (end - now) * (1.0 + balance), -1, INFINITY
    for u in range(look.kind.shape[0]):
        seconds = look.seconds[piece, look.kind[u]]
        if draft.available[u] + seconds <= bound:
            product = seconds * max(look.joules[piece, look.kind[u]], 1e-12)
            if product < least or (product == least and draft.available[u] < draft.available[best]):
                best, least = u, product
    return best


@compiled
def by_score(
    look: Look, now: float, count: int, draft: DispatchDraft, dream: bool, alpha: float, beta: float
) -> int:
    """The pairs of the highest score, one after the other, over free units."""
    answers = 0
    for u in range(look.kind.shape[0]):
        draft.available[u] = now if units.is_free(look, now, u) else INFINITY
    for i in range(count):
        draft.order[i] = 0
    while True:
        row, unit = _best_pair(look, now, count, draft, dream, alpha, beta)
        if row < 0:
            return answers
        answers = units.answer(draft, answers, row, unit)
        draft.available[unit] = INFINITY
        draft.order[row] = 1


@compiled
def _best_pair(
    look: Look, now: float, count: int, draft: DispatchDraft, dream: bool, alpha: float, beta: float
) -> tuple[int, int]:
    row, unit, most = -1, -1, -INFINITY
    for i in range(count):
        if draft.order[i] == 1 or (row >= 0 and draft.late[i] > draft.late[row]):
            continue
        found, score = _best_unit(look, now, draft, look.ready[i], dream, alpha, beta)
        if found >= 0 and (row < 0 or draft.late[i] < draft.late[row] or score > most):
            row, unit, most = i, found, score
    return row, unit


@inlined
def _best_unit(
    look: Look, now: float, draft: DispatchDraft, slot: int, dream: bool, alpha: float, beta: float
) -> tuple[int, float]:
    if not dream:
        unit = _enough(look, now, draft, slot)
        return unit, _planaria(look, now, slot, look.kind[unit]) if unit >= 0 else 0.0
    unit, most, piece = -1, -INFINITY, look.piece[slot]
    for u in range(look.kind.shape[0]):
        if draft.available[u] <= now and look.seconds[piece, look.kind[u]] < INFINITY:
            score = _dream(look, now, slot, look.kind[u], alpha, beta)
            if score > most:
                unit, most = u, score
    return unit, most


@inlined
def _enough(look: Look, now: float, draft: DispatchDraft, slot: int) -> int:
    """The slowest free unit that ends the request in time; where none does, the one that ends its piece first."""
    piece, time = look.piece[slot], look.deadline[slot] - now
    enough, most, fastest, least = -1, -1.0, -1, INFINITY
    for u in range(look.kind.shape[0]):
        if draft.available[u] > now:
            continue
        rest, seconds = look.remaining[piece, look.kind[u]], look.seconds[piece, look.kind[u]]
        if rest <= time and rest > most:
            enough, most = u, rest
        if seconds < least:
            fastest, least = u, seconds
    return enough if enough >= 0 else fastest


@inlined
def _planaria(look: Look, now: float, slot: int, kind: int) -> float:
    """weight / (slack x resources), these the part of the fastest conceivable unit's speed that the unit has."""
    piece = look.piece[slot]
    least = look.least[piece]
    slack = max(look.deadline[slot] - now - least, SLIGHT * least)
    rest = look.remaining[piece, kind]
    speed = least / rest if rest > 0.0 else 1.0
    return look.weight[slot] / (slack * speed)


@inlined
def _dream(look: Look, now: float, slot: int, kind: int, alpha: float, beta: float) -> float:
    """Urgency x preference of the unit + alpha x fairness + beta x thrift; each but fairness in (0, 1]."""
    piece, time = look.piece[slot], look.deadline[slot] - now
    urgency = min(1.0, look.least[piece] / time) if time > 0.0 else 1.0
    seconds, joules = look.seconds[piece, kind], look.joules[piece, kind]
    preferred, thrift = INFINITY, INFINITY
    for k in range(look.seconds.shape[1]):
        if look.seconds[piece, k] < INFINITY:
            preferred, thrift = min(preferred, look.seconds[piece, k]), min(thrift, look.joules[piece, k])
    fairness = max(now - look.ready_since[slot], 0.0) / seconds
    cheap = thrift / joules if joules > 0.0 else 1.0
    return look.weight[slot] * (urgency * preferred / seconds + alpha * fairness) + beta * cheap


FCFS, EDF, LLF, SJF, PREMA, RANDOM, HERALD, PLANARIA, DREAM, MAGMA, TRIAGE = range(11)

# Places in ``parameters`` that mean the same to all policies; the rest is each one's own.
LATE_LAST, WAIT, SPARE, OWN = range(4)
PARAMETERS = 8


@compiled
def decide(code: int, parameters: np.ndarray, look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """How many requests begin their next piece now; which and where is in ``draft.ready`` and ``draft.unit``.

    ``count``: how many are ready, P. Nothing of ``look`` is changed.
    """
    if count == 0:
        return 0
    if code == TRIAGE:
        return triage.triage(look, now, count, draft)
    if code == MAGMA:
        return genes.magma(look, now, count, draft, parameters[OWN], parameters[OWN + 1])
    keys.mark_late(look, now, count, draft, parameters[LATE_LAST] > 0.0)
    if code in (PLANARIA, DREAM):
        alpha, beta = parameters[OWN], parameters[OWN + 1]
        return by_score(look, now, count, draft, code == DREAM, alpha, beta)
    _order(code, parameters, look, now, count, draft)
    if code == HERALD:
        return herald(look, now, count, draft, parameters[OWN])
    bandwidth = look.bandwidth if parameters[SPARE] > 0.0 else INFINITY
    if parameters[WAIT] > 0.0:
        return units.assign_waiting(look, now, count, draft, bandwidth)
    return units.assign(look, now, count, draft, bandwidth)


@compiled
def _order(code: int, parameters: np.ndarray, look: Look, now: float, count: int, draft: DispatchDraft) -> None:
    if code == EDF:
        keys.deadlines(look, count, draft)
    elif code == LLF:
        keys.laxities(look, count, draft)
    elif code == SJF:
        keys.remainders(look, count, draft)
    elif code == PREMA:
        keys.tokens(look, now, count, draft)
    elif code == RANDOM:
        keys.chances(look, count, draft, parameters[OWN])
    else:
        keys.arrivals(look, count, draft)
