"""MAGMA-like genetic search: which unit, and in which order, for the requests that wait.

An individual has two genes for each request of the window: a unit, and a number by which those of one unit are
ordered. The window are the first ``WINDOW`` ready requests by deadline, those that cannot be in time behind the
others. What was found is kept by request: its rank and its unit, until the next search.
"""

from __future__ import annotations

from mirage.allocation.inference.kernel import deciding_units as keys
from mirage.allocation.inference.kernel import deciding_units as units
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, POPULATION, WINDOW, DispatchDraft, Look

RANK, UNIT = range(2)
"""Columns of ``draft.memory``: from 1 on; 0 where it has no place in the plan."""
DRAWS, NEXT = range(2)
"""Places in ``draft.state``: numbers drawn so far; when to search again."""
ORDER, PLACE = range(2)
"""Of the genes."""

GENERATIONS = 8
ELITE = POPULATION // 4
MUTATION = 0.05
HASTE = 1e-3
"""What the sum of all ends, in units of what is left to do, is worth next to one deadline."""


@compiled
def magma(look: Look, now: float, count: int, draft: DispatchDraft, period: float, seed: float) -> int:
    """Search again when the period is over or somebody has no plan yet; then obey the plan."""
    units.note_available(look, now, draft)
    keys.mark_late(look, now, count, draft, True)
    keys.deadlines(look, count, draft)
    size = _gather(count, draft)
    if now >= draft.state[NEXT] or _has_unplanned(look, count, draft, size):
        _search(look, now, count, draft, size, seed)
        draft.state[NEXT] = now + period
    return _obey(look, now, count, draft)


@compiled
def _gather(count: int, draft: DispatchDraft) -> int:
    """The window's rows come to the end of ``draft.order``, its last row is the first of them; how many."""
    left, size = units.heapify(draft, count), min(count, WINDOW)
    for _ in range(size):
        left = units.pop(draft, left)
    return size


@inlined
def _slot(look: Look, count: int, draft: DispatchDraft, gene: int) -> int:
    return look.ready[draft.order[count - 1 - gene]]


@inlined
def _has_unplanned(look: Look, count: int, draft: DispatchDraft, size: int) -> bool:
    for gene in range(size):
        if draft.memory[_slot(look, count, draft, gene), RANK] == 0.0:
            return True
    return False


@inlined
def _draw(draft: DispatchDraft, seed: float) -> float:
    draft.state[DRAWS] += 1.0
    return keys.uniform(int(draft.state[DRAWS]), 0, seed)


@compiled
def _search(look: Look, now: float, count: int, draft: DispatchDraft, size: int, seed: float) -> None:
    _seed_greedily(look, count, draft, size)
    for one in range(POPULATION):
        for gene in range(size if one > 0 else 0):
            draft.genes[one, ORDER, gene] = _draw(draft, seed)
            draft.genes[one, PLACE, gene] = _any_unit(look, count, draft, gene, _draw(draft, seed))
        draft.fitness[one] = _fitness(look, now, count, draft, size, one)
    for _ in range(GENERATIONS):
        _sort(draft, size)
        for one in range(ELITE, POPULATION):
            _breed(look, count, draft, size, one, seed)
            draft.fitness[one] = _fitness(look, now, count, draft, size, one)
    _sort(draft, size)
    _write(look, count, draft, size)


@inlined
def _can(look: Look, piece: int, unit: int) -> bool:
    return look.seconds[piece, look.kind[unit]] < INFINITY and look.free_at[unit] < INFINITY


@compiled
def _seed_greedily(look: Look, count: int, draft: DispatchDraft, size: int) -> None:
    """The first individual: by deadline, each to the unit on which it ends first."""
    for u in range(look.kind.shape[0]):
        draft.start[u] = draft.available[u]
    for gene in range(size):
        best, least, piece = 0, INFINITY, look.piece[_slot(look, count, draft, gene)]
        for u in range(look.kind.shape[0]):
            end = draft.start[u] + _rest(look, piece, u)
            if end < least:
                best, least = u, end
        draft.genes[0, ORDER, gene] = (gene + 0.5) / size
        draft.genes[0, PLACE, gene] = best
        draft.start[best] = least


@inlined
def _rest(look: Look, piece: int, unit: int) -> float:
    """Seconds to the request's end: all on this unit, or where it cannot, the other pieces elsewhere."""
    if not _can(look, piece, unit):
        return INFINITY
    rest = look.remaining[piece, look.kind[unit]]
    return rest if rest < INFINITY else look.seconds[piece, look.kind[unit]] + look.least[piece]


@compiled
def _any_unit(look: Look, count: int, draft: DispatchDraft, gene: int, drawn: float) -> int:
    """One of those that can run the next piece; the first where none can."""
    piece, able = look.piece[_slot(look, count, draft, gene)], 0
    for u in range(look.kind.shape[0]):
        able += _can(look, piece, u)
    wanted = int(drawn * able)
    for u in range(look.kind.shape[0]):
        if _can(look, piece, u):
            if wanted == 0:
                return u
            wanted -= 1
    return 0


@compiled
def _fitness(look: Look, now: float, count: int, draft: DispatchDraft, size: int, one: int) -> float:
    """Weight of the requests in time, each to its end on its unit; less how late all end."""
    for u in range(look.kind.shape[0]):
        draft.start[u] = draft.available[u]
    kept, late, work = 0.0, 0.0, 0.0
    before = -1.0
    for _ in range(size):
        gene = _next(draft, size, one, before)
        before = draft.genes[one, ORDER, gene]
        slot, unit = _slot(look, count, draft, gene), int(draft.genes[one, PLACE, gene])
        piece = look.piece[slot]
        draft.start[unit] += _rest(look, piece, unit)
        kept += look.weight[slot] if draft.start[unit] <= look.deadline[slot] else 0.0
        late += draft.start[unit] - now
        work += look.least[piece]
    return kept - HASTE * late / work


@inlined
def _next(draft: DispatchDraft, size: int, one: int, before: float) -> int:
    """The gene of the least order above ``before``; orders are all different."""
    best, least = 0, INFINITY
    for gene in range(size):
        if before < draft.genes[one, ORDER, gene] < least:
            best, least = gene, draft.genes[one, ORDER, gene]
    return best


@compiled
def _sort(draft: DispatchDraft, size: int) -> None:
    """The fittest first."""
    for i in range(1, POPULATION):
        j = i
        while j > 0 and draft.fitness[j] > draft.fitness[j - 1]:
            draft.fitness[j], draft.fitness[j - 1] = draft.fitness[j - 1], draft.fitness[j]
            for which in range(2):
                for gene in range(size):
                    mine, theirs = draft.genes[j, which, gene], draft.genes[j - 1, which, gene]
                    draft.genes[j, which, gene], draft.genes[j - 1, which, gene] = theirs, mine
            j -= 1


@compiled
def _breed(look: Look, count: int, draft: DispatchDraft, size: int, one: int, seed: float) -> None:
    """A child of two of the elite, in place of ``one``: by one of MAGMA's crossovers, then mutated.

    They are of one kind of gene from a place on, of both kinds from a place on, and of all that one parent has on
    one unit.
    """
    mother, father = int(_draw(draft, seed) * ELITE), int(_draw(draft, seed) * ELITE)
    way, cut = int(_draw(draft, seed) * 4), int(_draw(draft, seed) * size)
    unit = int(_draw(draft, seed) * look.kind.shape[0])
    for gene in range(size):
        whole = draft.genes[father, PLACE, gene] == unit if way == 3 else gene >= cut
        for which in range(2):
            giver = father if whole and way in (which, 2, 3) else mother
            draft.genes[one, which, gene] = draft.genes[giver, which, gene]
        if _draw(draft, seed) < MUTATION:
            draft.genes[one, ORDER, gene] = _draw(draft, seed)
        if _draw(draft, seed) < MUTATION:
            draft.genes[one, PLACE, gene] = _any_unit(look, count, draft, gene, _draw(draft, seed))


@compiled
def _write(look: Look, count: int, draft: DispatchDraft, size: int) -> None:
    """Keep the fittest as the plan; nobody else has a place in it."""
    for i in range(count):
        draft.memory[look.ready[i], RANK] = 0.0
    before = -1.0
    for rank in range(size):
        gene = _next(draft, size, 0, before)
        before = draft.genes[0, ORDER, gene]
        slot = _slot(look, count, draft, gene)
        draft.memory[slot, RANK] = rank + 1.0
        draft.memory[slot, UNIT] = draft.genes[0, PLACE, gene]


@compiled
def _obey(look: Look, now: float, count: int, draft: DispatchDraft) -> int:
    """Each free unit to the first of its own line; then to others, as ``_serves``."""
    answers = 0
    for i in range(count):
        draft.late[i] = 0
    for others in range(2):
        for u in range(look.kind.shape[0]):
            if units.is_free(look, now, u) and draft.available[u] <= now:
                row = _first_of(look, now, count, draft, u, others == 1)
                if row >= 0:
                    answers = units.answer(draft, answers, row, u)
                    draft.available[u] = now + look.seconds[look.piece[look.ready[row]], look.kind[u]]
                    draft.late[row] = 1
    return answers


@compiled
def _first_of(look: Look, now: float, count: int, draft: DispatchDraft, unit: int, others: bool) -> int:
    """Whoever comes first in the plan; those without a plan come behind, by deadline. -1: nobody."""
    row, least = -1, INFINITY
    for at in range(count):
        i = draft.order[count - 1 - at]
        slot = look.ready[i]
        rank = draft.memory[slot, RANK] if draft.memory[slot, RANK] > 0.0 else 1e6 + at
        if draft.late[i] == 0 and rank < least and _serves(look, now, draft, slot, unit, others):
            row, least = i, rank
    return row


@inlined
def _serves(look: Look, now: float, draft: DispatchDraft, slot: int, unit: int, others: bool) -> bool:
    """Whether a unit is for a request: its own; with ``others``, one that ends the piece no later than its own
    would."""
    seconds = look.seconds[look.piece[slot], look.kind[unit]]
    if not seconds < INFINITY:
        return False
    planned = draft.memory[slot, RANK] > 0.0
    if not others:
        return planned and draft.memory[slot, UNIT] == unit
    own = int(draft.memory[slot, UNIT])
    end = draft.available[own] + look.seconds[look.piece[slot], look.kind[own]]
    return not planned or not end < INFINITY or now + seconds <= end
