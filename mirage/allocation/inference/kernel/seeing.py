"""What the learned agents see of requests and units at one time, compiled: numbers without a unit.

Rows are requests that are ready, requests that run (their following pieces), and one for each model "to come":
what a request of it would be that came now. Seconds are always by others of the same time or by the period, so
that agents can be trained on one system and be used on another. ``squash(x) = x / (1 + |x|)`` keeps what has no
bound within -1 and 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.layout import INFINITY, Look
from mirage.allocation.inference.kernel.sharing import wanted_by_all

PIECE = (
    "slack",  # from when it can begin till the deadline, less what is left at best: by that, squashed
    "hopeless",  # 1: late even at best
    "left",  # at best, by the period: logarithm
    "size",  # left, by the mean of the rows: logarithm
    "age",  # since arrival, by the time from arrival to deadline; 0 for what runs
    "done",  # seconds on units, by these and what is left; 0 for what runs
    "waited",  # since it became ready, by the period, squashed
    "ahead",  # what is left of those with earlier deadlines, by units and the time till the deadline, squashed
    "place",  # in the order
    "weight",  # logarithm
    "standing",  # the tenant's share of requests in time, less that of all; 0 for what runs
    "spread",  # slowest kind by fastest, to the end: logarithm
    "runs",  # 1: now
    "comes",  # 1: it is not there yet
    "bytes",  # to the end at least, by what the bandwidth moves in what is left, for each unit: squashed
    "allowed",  # from arrival to deadline as usual for the model, by what it takes at best: logarithm
    "often",  # the model's part of those that were seen waiting, recently
)
PAIR = (
    "able",  # 1: the kind can run the piece
    "latency",  # c: of the next piece, by that on its fastest kind: logarithm
    "rest",  # to the end on this kind, by what is left at best: logarithm
    "bandwidth",  # b: what the piece wants, by a unit's part of the system's, squashed
    "moved",  # bytes of the next piece, by those on the kind that moves the least: logarithm
    "wait",  # until a unit is free, by what is left at best, squashed
    "margin",  # till the deadline when begun there and ended there: by what is left at best, squashed
    "energy",  # of the next piece, by that on its thriftiest kind: logarithm
    "free",  # part of its units
    "many",  # part of all units
)
STATE = (
    "ready",  # how many, by the most that are seen: squashed
    "hopeless",  # part of the rows
    "busy",  # part of the units
    "drawn",  # bandwidth wanted, by the system's, squashed
    "backlog",  # what is left of all that can be in time, by the units and their mean time till the deadline
    "kept",  # share of requests in time so far
    "scarce",  # of what usually comes: seconds of bandwidth by seconds of units, logarithm
)
SLACK, HOPELESS, LEFT, SIZE, AGE, DONE, WAITED, AHEAD, PLACE, WEIGHT, STANDING, SPREAD, *_ = range(len(PIECE))
RUNS, COMES, BYTES, ALLOWED, OFTEN = range(SPREAD + 1, len(PIECE))
ABLE, LATENCY, REST, BANDWIDTH, MOVED, WAIT, MARGIN, ENERGY, FREE, MANY = range(len(PAIR))
READY, LOST, BUSY, DRAWN, BACKLOG, KEPT, SCARCE = range(len(STATE))
UNLIKELY = 10.0
"""Deadlines that do not exist are taken to be so many times further than what is left."""

TINY = 1e-12
"""Seconds: less than anything takes."""


class Usual(NamedTuple):
    """What is known of models next to their costs."""

    allowed: np.ndarray  # f8 (M,): seconds from arrival to deadline; NaN: never seen
    tenant: np.ndarray  # i4 (M,): the last one's
    weight: np.ndarray  # f8 (M,): the last one's
    often: np.ndarray  # f8 (M,): part of those that wait, recently
    moved: np.ndarray  # f8 (L,): bytes to the end of the model, each piece on the kind that moves the least
    kinds: np.ndarray  # f8 (3, K): working memory


class ObservedRows(NamedTuple):
    """What is seen, one after the other."""

    row: np.ndarray  # i4 (N,): the slot; of what is to come, -1 less its model
    piece: np.ndarray  # i4 (N,)
    model: np.ndarray  # i4 (N,)
    deadline: np.ndarray  # f8 (N,)
    begins: np.ndarray  # f8 (N,): at the earliest
    weight: np.ndarray  # f8 (N,)


@compiled
def gather(look: Look, now: float, chosen: np.ndarray, usual: Usual, rows: ObservedRows) -> int:
    """Fill ``rows``: the ``chosen`` of the ready (places), what runs and continues, what is usual. How many."""
    count = 0
    for i in range(len(chosen)):
        slot = look.ready[chosen[i]]
        _put(rows, count, slot, look.piece[slot], look.model[slot], look.deadline[slot], now, look.weight[slot])
        count += 1
    for unit in range(len(look.kind)):
        slot = look.running[unit]
        if slot >= 0 and look.piece[slot] + 1 < look.first[look.model[slot] + 1]:
            begins = max(look.free_at[unit], now)
            _put(
                rows,
                count,
                slot,
                look.piece[slot] + 1,
                look.model[slot],
                look.deadline[slot],
                begins,
                look.weight[slot],
            )
            count += 1
    for model in range(len(usual.allowed)):
        if usual.allowed[model] > 0.0:
            deadline = now + usual.allowed[model]
            _put(rows, count, -1 - model, look.first[model], model, deadline, now, usual.weight[model])
            count += 1
    return count


@inlined
def _put(
    rows: ObservedRows, at: int, row: int, piece: int, model: int, deadline: float, begins: float, weight: float
) -> None:
    rows.row[at], rows.piece[at], rows.model[at] = row, piece, model
    rows.deadline[at], rows.begins[at], rows.weight[at] = deadline, begins, weight


@compiled
def see(
    look: Look,
    now: float,
    period: float,
    rows: ObservedRows,
    order: np.ndarray,
    count: int,
    usual: Usual,
    piece: np.ndarray,
    pair: np.ndarray,
    state: np.ndarray,
) -> None:
    """Fill ``piece`` (N, len(PIECE)), ``pair`` (N, K, len(PAIR)) and ``state`` (len(STATE),), all f4.

    ``order`` (N,): places in ``rows``, by deadline; ``count``: ready, P.
    """
    units, kinds = len(look.kind), look.seconds.shape[1]
    _see_kinds(look, now, usual)
    free, many, soonest = usual.kinds[0], usual.kinds[1], usual.kinds[2]
    mean = _mean_left(look, rows, order)
    ahead = hopeless = backlog = till = timely = 0.0
    kept, ended = float(look.tenant_kept.sum()), float(look.tenant_ended.sum())
    share = (kept + 1.0) / (ended + 1.0)
    for at in range(len(order)):
        row = order[at]
        least = max(look.least[rows.piece[row]], TINY)
        deadline = min(rows.deadline[row], rows.begins[row] + UNLIKELY * least)
        _see_piece(look, now, period, rows, row, deadline, usual, share, piece[at])
        piece[at, SIZE] = np.log(least / mean) / 2.0
        piece[at, AHEAD] = _squash(ahead / units / max(deadline - now, 0.1 * least))
        piece[at, PLACE] = at / 64.0
        for kind in range(kinds):
            _see_pair(look, now, rows, row, kind, deadline, max(soonest[kind], rows.begins[row]), pair[at, kind])
            pair[at, kind, FREE] = free[kind] / max(many[kind], 1.0)
            pair[at, kind, MANY] = many[kind] / units
        if piece[at, HOPELESS] > 0.0:
            hopeless += 1.0
        elif rows.row[row] >= 0:
            ahead += least
            backlog += least
            till += deadline - now
            timely += 1.0
    state[READY] = _squash(count / 64.0)
    state[LOST] = hopeless / max(len(order), 1)
    state[BUSY] = 1.0 - free.sum() / units
    state[DRAWN] = _squash(wanted_by_all(look.drawn) / look.bandwidth)
    state[BACKLOG] = _squash(backlog / units / (till / timely)) if timely > 0.0 else 0.0
    state[KEPT] = share
    state[SCARCE] = _scarcity(look, usual)


@inlined
def _squash(value: float) -> float:
    return value / (1.0 + abs(value))


@compiled
def _see_kinds(look: Look, now: float, usual: Usual) -> None:
    """Of each kind: units that are free, units, when the first of them is free."""
    usual.kinds[:2] = 0.0
    usual.kinds[2] = INFINITY
    for unit in range(len(look.kind)):
        kind = look.kind[unit]
        usual.kinds[0, kind] += look.running[unit] < 0 and look.free_at[unit] <= now
        usual.kinds[1, kind] += 1.0
        usual.kinds[2, kind] = min(usual.kinds[2, kind], max(look.free_at[unit], now))


@compiled
def _mean_left(look: Look, rows: ObservedRows, order: np.ndarray) -> float:
    total = 0.0
    for at in range(len(order)):
        total += look.least[rows.piece[order[at]]]
    return max(total, TINY) / max(len(order), 1)


@compiled
def _scarcity(look: Look, usual: Usual) -> float:
    moved = worked = TINY
    for model in range(len(usual.often)):
        moved += usual.often[model] * usual.moved[look.first[model]] / look.bandwidth
        worked += usual.often[model] * look.least[look.first[model]] / len(look.kind)
    return max(np.log(moved / worked), -3.0)


@inlined
def _see_piece(
    look: Look,
    now: float,
    period: float,
    rows: ObservedRows,
    row: int,
    deadline: float,
    usual: Usual,
    share: float,
    seen: np.ndarray,
) -> None:
    at, slot, model = rows.piece[row], rows.row[row], rows.model[row]
    least, runs = max(look.least[at], TINY), rows.begins[row] > now
    slack = deadline - rows.begins[row] - least
    seen[SLACK] = _squash(slack / least)
    seen[HOPELESS] = slack < 0.0
    seen[LEFT] = np.log(least / period) / 4.0
    tenant = usual.tenant[model]
    if slot >= 0 and not runs:
        tenant = look.tenant[slot]
        seen[AGE] = min((now - look.arrival[slot]) / max(deadline - look.arrival[slot], 1e-9), 3.0)
        seen[DONE] = look.served[slot] / (look.served[slot] + least)
        seen[WAITED] = _squash((now - look.ready_since[slot]) / period)
    seen[WEIGHT] = np.log(rows.weight[row])
    if not runs:
        seen[STANDING] = (look.tenant_kept[tenant] + 1.0) / (look.tenant_ended[tenant] + 1.0) - share
    slowest = least
    for kind in range(look.remaining.shape[1]):
        if look.remaining[at, kind] > slowest:  # noqa: PLR1730 (NaN)
            slowest = look.remaining[at, kind]
    seen[SPREAD] = np.log(slowest / least) / 2.0
    seen[RUNS], seen[COMES] = runs, slot < 0
    seen[BYTES] = _squash(usual.moved[at] / look.bandwidth * len(look.kind) / least)
    whole = max(look.least[look.first[model]], TINY)
    if usual.allowed[model] > 0.0:
        seen[ALLOWED] = np.log(max(min(usual.allowed[model], UNLIKELY * whole), whole / UNLIKELY) / whole) / 2.0
    seen[OFTEN] = usual.often[model]


@inlined
def _see_pair(
    look: Look,
    now: float,
    rows: ObservedRows,
    row: int,
    kind: int,
    deadline: float,
    begins: float,
    seen: np.ndarray,
) -> None:
    at = rows.piece[row]
    seconds = look.seconds[at, kind]
    seen[:] = 0.0
    if not seconds > 0.0:
        return
    least, rest = max(look.least[at], TINY), look.remaining[at, kind]
    if not rest > 0.0:
        rest = seconds + least
    fastest, thriftiest, lightest = seconds, look.joules[at, kind], look.dram_bytes[at, kind]
    for other in range(look.seconds.shape[1]):
        if look.seconds[at, other] < fastest:  # noqa: PLR1730 (NaN)
            fastest = look.seconds[at, other]
        if look.joules[at, other] < thriftiest:  # noqa: PLR1730 (NaN)
            thriftiest = look.joules[at, other]
        if look.dram_bytes[at, other] < lightest:  # noqa: PLR1730 (NaN)
            lightest = look.dram_bytes[at, other]
    wait = begins - now
    seen[ABLE] = 1.0
    seen[LATENCY] = np.log(seconds / fastest) / 2.0
    seen[REST] = np.log(rest / least) / 2.0
    seen[BANDWIDTH] = _squash(look.dram_bytes[at, kind] / seconds / look.bandwidth * len(look.kind))
    seen[MOVED] = np.log(look.dram_bytes[at, kind] / lightest) / 2.0 if lightest > 0.0 else 0.0
    seen[WAIT] = _squash(wait / least) if wait < INFINITY else 1.0
    seen[MARGIN] = _squash((deadline - now - wait - rest) / least) if wait < INFINITY else -1.0
    seen[ENERGY] = np.log(look.joules[at, kind] / thriftiest) / 2.0 if thriftiest > 0.0 else 0.0
