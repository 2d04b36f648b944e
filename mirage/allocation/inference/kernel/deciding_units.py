"""Policies that only say who comes first: their keys, and the unit that each request gets.

Keys stand in ``draft.key``, the smallest first; requests that ``draft.late`` marks come behind all others. Of
equal ones the first to arrive is first. Nothing begins while what is on units wants all of ``bandwidth``.
"""

from __future__ import annotations

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, DispatchDraft, Look
from mirage.allocation.inference.kernel.sharing import want, wanted_by_all


@compiled
def arrivals(look: Look, count: int, draft: DispatchDraft) -> None:
    """FCFS."""
    for i in range(count):
        draft.key[i] = i


@compiled
def deadlines(look: Look, count: int, draft: DispatchDraft) -> None:
    """EDF."""
    for i in range(count):
        draft.key[i] = look.deadline[look.ready[i]]


@compiled
def laxities(look: Look, count: int, draft: DispatchDraft) -> None:
    """LLF: deadline - now - remaining; now is the same for all."""
    for i in range(count):
        slot = look.ready[i]
        draft.key[i] = look.deadline[slot] - look.least[look.piece[slot]]


@compiled
def remainders(look: Look, count: int, draft: DispatchDraft) -> None:
    """SJF by what remains."""
    for i in range(count):
        draft.key[i] = look.least[look.piece[look.ready[i]]]


@compiled
def chances(look: Look, count: int, draft: DispatchDraft, seed: float) -> None:
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
def tokens(look: Look, now: float, count: int, draft: DispatchDraft) -> None:
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
def mark_late(look: Look, now: float, count: int, draft: DispatchDraft, matters: bool) -> None:
    """Who would miss the deadline even alone, each piece on its fastest kind; nobody, unless it ``matters``."""
    for i in range(count):
        slot = look.ready[i]
        draft.late[i] = matters and now + look.least[look.piece[slot]] > look.deadline[slot]


@compiled
def assign(look: Look, now: float, count: int, draft: DispatchDraft, bandwidth: float) -> int:
    """Each request in turn to the free unit on which its piece ends first, while units are free."""
    free, wanted = _note_free(look, now, draft), wanted_by_all(look.drawn)
    if free == 0 or wanted >= bandwidth:
        return 0
    if free == 1:
        return _assign_one(look, now, count, draft)
    answers, left = 0, heapify(draft, count)
    while left > 0 and answers < free and wanted < bandwidth:
        left = pop(draft, left)
        piece = look.piece[look.ready[draft.order[left]]]
        unit = _soonest_free(look, now, draft, piece)
        if unit >= 0:
            draft.available[unit] = INFINITY
            wanted += want(look, piece, look.kind[unit])
            answers = answer(draft, answers, draft.order[left], unit)
    return answers


@compiled
def assign_waiting(look: Look, now: float, count: int, draft: DispatchDraft, bandwidth: float) -> int:
    """Each request in turn to the unit on which its piece ends first, also if it is busy until then.

    List scheduling: what is promised to a unit delays what is promised to it next. Only what begins now is
    answered; the rest is decided again at the next time.
    """
    open_units, wanted = note_available(look, now, draft), wanted_by_all(look.drawn)
    if open_units == 0 or wanted >= bandwidth:
        return 0
    answers, left = 0, heapify(draft, count)
    while left > 0 and open_units > 0 and wanted < bandwidth:
        left = pop(draft, left)
        row = draft.order[left]
        piece = look.piece[look.ready[row]]
        unit, end = soonest(look, draft, piece)
        if unit < 0:
            continue
        if draft.available[unit] <= now:
            answers = answer(draft, answers, row, unit)
            open_units -= 1
            wanted += want(look, piece, look.kind[unit])
        draft.available[unit] = end
    return answers


@compiled
def note_available(look: Look, now: float, draft: DispatchDraft) -> int:
    """When each unit can begin something; how many can now.

    A unit that was estimated to be free by now but is not is taken to need as long again as it is overdue.
    """
    free = 0
    for u in range(look.kind.shape[0]):
        at = look.free_at[u]
        if look.running[u] >= 0:
            draft.available[u] = at if at > now else now + max(now - at, 1e-9)
        else:
            draft.available[u] = max(at, now)
            free += at <= now
    return free


@inlined
def is_free(look: Look, now: float, unit: int) -> bool:
    """Neither busy nor down."""
    return look.running[unit] < 0 and look.free_at[unit] <= now


@inlined
def answer(draft: DispatchDraft, answers: int, row: int, unit: int) -> int:
    """One more of what begins now."""
    draft.ready[answers] = row
    draft.unit[answers] = unit
    return answers + 1


@compiled
def soonest(look: Look, draft: DispatchDraft, piece: int) -> tuple[int, float]:
    """The unit on which a piece ends first, and when; -1 where no unit that is up can run it."""
    best, end = -1, INFINITY
    for u in range(look.kind.shape[0]):
        time = draft.available[u] + look.seconds[piece, look.kind[u]]
        if time < end:
            best, end = u, time
    return best, end


@compiled
def _note_free(look: Look, now: float, draft: DispatchDraft) -> int:
    free = 0
    for u in range(look.kind.shape[0]):
        draft.available[u] = INFINITY
        if is_free(look, now, u):
            draft.available[u] = now
            free += 1
    return free


@compiled
def _soonest_free(look: Look, now: float, draft: DispatchDraft, piece: int) -> int:
    best, least = -1, INFINITY
    for u in range(look.kind.shape[0]):
        time = look.seconds[piece, look.kind[u]]
        if draft.available[u] <= now and time < least:
            best, least = u, time
    return best


@compiled
def _assign_one(look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """As ``assign``, for one free unit: one pass over the requests."""
    unit = 0
    while draft.available[unit] > now:
        unit += 1
    kind, best = look.kind[unit], -1
    for i in range(count):
        if look.seconds[look.piece[look.ready[i]], kind] < INFINITY and (best < 0 or comes_before(draft, i, best)):
            best = i
    return answer(draft, 0, best, unit) if best >= 0 else 0


@inlined
def comes_before(draft: DispatchDraft, a: int, b: int) -> bool:
    """Whether row ``a`` comes before row ``b``."""
    if draft.late[a] != draft.late[b]:
        return draft.late[a] < draft.late[b]
    return draft.key[a] < draft.key[b] or (draft.key[a] == draft.key[b] and a < b)


@compiled
def heapify(draft: DispatchDraft, count: int) -> int:
    """``draft.order`` becomes a heap of all rows, who comes first on top; its size."""
    for i in range(count):
        draft.order[i] = i
    for i in range(count // 2 - 1, -1, -1):
        _sink(draft, i, count)
    return count


@compiled
def pop(draft: DispatchDraft, left: int) -> int:
    """Take who comes first from the heap: it stands behind the heap then, at the heap's new size, the answer."""
    left -= 1
    draft.order[0], draft.order[left] = draft.order[left], draft.order[0]
    _sink(draft, 0, left)
    return left


@compiled
def _sink(draft: DispatchDraft, at: int, size: int) -> None:
    row = draft.order[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and comes_before(draft, draft.order[child + 1], draft.order[child]):
            child += 1
        if not comes_before(draft, draft.order[child], row):
            break
        draft.order[at] = draft.order[child]
        at = child
    draft.order[at] = row
