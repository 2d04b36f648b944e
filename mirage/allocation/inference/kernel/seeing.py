"""What the learned agents see of the ready pieces and the units at one instant, compiled: numbers without a unit.

Seconds are always by others of the same instant or by the period, so that agents can be taught on one system and
be used on another. ``squash(x) = x / (1 + |x|)`` keeps what has no bound within -1 and 1.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.look import Look

PIECE = (
    "slack",  # till the deadline, less what is left at best: by what is left at best, squashed
    "hopeless",  # 1: late even at best
    "left",  # at best, by the period: logarithm
    "size",  # left, by the mean of the ready: logarithm
    "age",  # since arrival, by the time from arrival to deadline
    "done",  # seconds on units, by these and what is left
    "waited",  # since it became ready, by the period, squashed
    "ahead",  # what is left of those with earlier deadlines, by units and the time till the deadline, squashed
    "place",  # in the order
    "weight",  # logarithm
    "standing",  # the tenant's share of requests in time, less that of all
    "spread",  # slowest kind by fastest, to the end: logarithm
)
PAIR = (
    "able",  # 1: the kind can run the piece
    "latency",  # c: of the next piece, by that on its fastest kind: logarithm
    "rest",  # to the end on this kind, by what is left at best: logarithm
    "bandwidth",  # b: what the piece wants, by the system's, squashed
    "wait",  # until the unit is free, by what is left at best, squashed
    "margin",  # till the deadline when begun there and ended there: by what is left at best, squashed
    "energy",  # of the next piece, by that on its thriftiest kind: logarithm
    "free",  # 1: now
)
STATE = (
    "ready",  # how many, by the most that are seen: squashed
    "hopeless",  # part of the ready
    "busy",  # part of the units
    "drawn",  # bandwidth wanted, by the system's, squashed
    "backlog",  # what is left of all that can be in time, by the units and their mean time till the deadline
    "kept",  # share of requests in time so far
)
UNLIKELY = 10.0
"""Deadlines that do not exist are taken to be so many times further than what is left."""

TINY = 1e-12
"""Seconds: less than anything takes."""


@compiled
def see(
    look: Look,
    now: float,
    period: float,
    order: np.ndarray,
    count: int,
    piece: np.ndarray,
    pair: np.ndarray,
    state: np.ndarray,
) -> None:
    """Fill ``piece`` (N, len(PIECE)), ``pair`` (N, U, len(PAIR)) and ``state`` (len(STATE),), all f4.

    ``order`` (N,): places in ``look.ready`` of the pieces that are seen, by deadline; ``count``: ready, P.
    """
    units = len(look.kind)
    mean, drawn = _mean_left(look, order), 0.0
    ahead = hopeless = backlog = till = 0.0
    kept, ended = float(look.tenant_kept.sum()), float(look.tenant_ended.sum())
    share = (kept + 1.0) / (ended + 1.0)
    for row in range(len(order)):
        slot = look.ready[order[row]]
        least = max(look.least[look.piece[slot]], TINY)
        deadline = min(look.deadline[slot], now + UNLIKELY * least)
        is_late = deadline - now < least
        _see_piece(look, now, period, slot, deadline, piece[row])
        piece[row, 3] = np.log(least / mean) / 2.0
        piece[row, 7] = _squash(ahead / units / max(deadline - now, 0.1 * least))
        piece[row, 8] = row / 64.0
        tenant = look.tenant[slot]
        piece[row, 10] = (look.tenant_kept[tenant] + 1.0) / (look.tenant_ended[tenant] + 1.0) - share
        for unit in range(units):
            _see_pair(look, now, slot, unit, deadline, pair[row, unit])
        if is_late:
            hopeless += 1.0
        else:
            ahead += least
            backlog += least
            till += deadline - now
    timely = len(order) - hopeless
    busy = 0.0
    for unit in range(units):
        drawn += look.drawn[unit]
        busy += look.running[unit] >= 0
    state[0] = _squash(count / 64.0)
    state[1] = hopeless / max(len(order), 1)
    state[2] = busy / units
    state[3] = _squash(drawn / look.bandwidth)
    state[4] = _squash(backlog / units / (till / timely)) if timely > 0.0 else 0.0
    state[5] = share


@inlined
def _squash(value: float) -> float:
    return value / (1.0 + abs(value))


@compiled
def _mean_left(look: Look, order: np.ndarray) -> float:
    total = 0.0
    for row in range(len(order)):
        total += look.least[look.piece[look.ready[order[row]]]]
    return max(total, TINY) / max(len(order), 1)


@inlined
def _see_piece(look: Look, now: float, period: float, slot: int, deadline: float, seen: np.ndarray) -> None:
    row = look.piece[slot]
    least = max(look.least[row], TINY)
    slack = deadline - now - least
    seen[0] = _squash(slack / least)
    seen[1] = slack < 0.0
    seen[2] = np.log(least / period) / 4.0
    seen[4] = min((now - look.arrival[slot]) / max(deadline - look.arrival[slot], 1e-9), 3.0)
    seen[5] = look.served[slot] / (look.served[slot] + least)
    seen[6] = _squash((now - look.ready_since[slot]) / period)
    seen[9] = np.log(look.weight[slot])
    slowest = least
    for kind in range(look.remaining.shape[1]):
        if look.remaining[row, kind] > slowest:  # noqa: PLR1730 (NaN)
            slowest = look.remaining[row, kind]
    seen[11] = np.log(slowest / least) / 2.0


@inlined
def _see_pair(look: Look, now: float, slot: int, unit: int, deadline: float, seen: np.ndarray) -> None:
    row, kind = look.piece[slot], look.kind[unit]
    seconds = look.seconds[row, kind]
    seen[:] = 0.0
    if not seconds > 0.0:
        return
    least, rest = max(look.least[row], TINY), look.remaining[row, kind]
    if not rest > 0.0:
        rest = seconds + least
    fastest, thriftiest = seconds, look.joules[row, kind]
    for other in range(look.seconds.shape[1]):
        if look.seconds[row, other] < fastest:  # noqa: PLR1730 (NaN)
            fastest = look.seconds[row, other]
        if look.joules[row, other] < thriftiest:  # noqa: PLR1730 (NaN)
            thriftiest = look.joules[row, other]
    wait = max(look.free_at[unit] - now, 0.0)
    seen[0] = 1.0
    seen[1] = np.log(seconds / fastest) / 2.0
    seen[2] = np.log(rest / least) / 2.0
    seen[3] = _squash(look.dram_bytes[row, kind] / seconds / look.bandwidth)
    seen[4] = _squash(wait / least) if wait < np.inf else 1.0
    seen[5] = _squash((deadline - now - wait - rest) / least) if wait < np.inf else -1.0
    seen[6] = np.log(look.joules[row, kind] / thriftiest) / 2.0 if thriftiest > 0.0 else 0.0
    seen[7] = look.running[unit] < 0 and wait <= 0.0
