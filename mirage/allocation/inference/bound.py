"""Upper bounds by linear programmes: on kept deadlines, and on the requests that a system can answer.

No policy exceeds them, even with knowledge of the future. The bound on deadlines: time is cut into slots. For each
request, y is the part of it that is answered in time, from 0 to 1; x[k, s] are the seconds that units of kind k
spend on it in slot s, w[s] the bytes that it moves there. A linear programme:

    the most sum y such that
    of each request   sum_k x[k, s] <= y x (seconds of slot s between its arrival and its deadline)
                      sum_k price[k] sum_s x[k, s] + price' sum_s w[s] >= y x work(price), for some prices
    of all together   sum x[k, s] <= (units of kind k) x (seconds of slot s)
                      sum w[s] <= bandwidth x (seconds of slot s)

These lines hold for any policy: y is 1 for the requests that it answered in time, x and w are the seconds and
bytes that it spent on them, and all is 0 for the others. A request is on one unit at a time, a unit works on one
request at a time, and by either rule of sharing no more than the bandwidth is used. A segment takes its unit for
at least its seconds alone, and moves its bytes. So, with a second on kind k at price[k] and a byte at price', a
request costs at least ``work``: the sum over its segments of the cost of each where that is cheapest. A policy
keeps an integer number of requests, so it keeps no more than the solution rounded down.

What is left out makes the bound larger than necessary, and never too small: the order of a request's segments,
that they are not interrupted, that y is 0 or 1, all prices but a few, the course within a slot, the time of
decisions, and that the requests of one block, for which a programme is solved, use units that another block needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.programmes import scipy_modules
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from scipy.sparse import coo_array

    from mirage.domain.inference import CostTable, DeviceSet, Float64, Int32, RequestTable


def capacity(costs: CostTable, system: DeviceSet, mix: Float64) -> float:
    """Requests per second with the share ``mix`` [M] of each model, sum 1: the bound that no policy can exceed.

    A linear programme: x[l, k] is how often per second segment l runs on kind k. The largest r such that every
    segment runs as often as requested, no kind is busy for more than its units' time, and no more bytes are moved
    than the bandwidth allows:

        sum_k x[l, k] = r mix[model of l];  sum_l x[l, k] seconds[l, k] <= units of kind k;
        sum_lk x[l, k] bytes[l, k] <= bandwidth;  x >= 0

    It is attained in the limit of long queues by a policy that runs segments in these proportions, unless segments
    are slowed by sharing while bandwidth is unused at other times. 0 where a model cannot be run at all.
    """
    optimize, sparse = scipy_modules()
    counts = np.bincount(system.kind, minlength=len(costs.kinds)).astype(np.float64)
    piece, kind = np.nonzero(~np.isnan(costs.seconds) & (counts > 0) & (_asked(costs, mix) > 0)[:, None])
    asked = np.flatnonzero(_asked(costs, mix) > 0)
    if len(np.unique(piece)) < len(asked):
        return 0.0
    seconds, moved, many = costs.seconds[piece, kind], costs.dram_bytes[piece, kind], np.arange(len(piece))
    scale = float(_asked(costs, mix)[asked] @ np.nanmin(costs.seconds[asked], axis=1))  # keeps x of the order of 1
    share = _asked(costs, mix)[asked, None] / scale
    run = sparse.coo_array((np.ones(len(piece)), (np.searchsorted(asked, piece), many)), (len(asked), len(piece)))
    busy = sparse.coo_array((seconds, (kind, many)), (len(counts), len(piece)))
    limits, bounds = [busy], [counts]
    if np.isfinite(system.bandwidth):
        limits.append(sparse.coo_array((moved / system.bandwidth, (np.zeros_like(many), many)), (1, len(piece))))
        bounds.append(np.ones(1))
    below = sparse.hstack(
        [
            sparse.coo_array(np.vstack([limit.toarray() for limit in limits])),
            sparse.coo_array((sum(map(len, bounds)), 1)),
        ]
    )
    found = optimize.linprog(
        np.append(np.zeros(len(piece)), -1.0),
        A_ub=below,
        b_ub=np.concatenate(bounds),
        A_eq=sparse.hstack([run, sparse.coo_array(-share)]),
        b_eq=np.zeros(len(asked)),
        method="highs",
    )
    return float(found.x[-1] / scale)


def _asked(costs: CostTable, mix: Float64) -> Float64:
    """[L] How often each segment runs for one request."""
    return np.repeat(mix, np.diff(costs.first))


Int64 = NDArray[np.int64]

_FEWEST, _MOST = 300, 600
"""Requests of a block: the solution time grows faster than their number."""
_TILTS = (0.25, 0.6, 1.6, 4.0)
"""Of the price of one kind, from where all kinds are as dear for the model."""
_BYTES = (0.0, 0.5, 2.0)
"""Prices of a model's bytes, next to those of its seconds."""
_LONGEST = 500
"""Slots. Requests with more time count as kept, at no cost to others."""
_TOLERANCE = 1e-4
"""Tolerated error of a solution, in requests of a block: far above the solver's tolerance."""


class Unbounded(MirageError):
    """The solver has found no bound."""


@dataclass(frozen=True, slots=True)
class _Means:
    """Use of each resource by requests (J): a second of units of each kind, and one of all the bandwidth."""

    limits: Float64
    """[J] Amount of each resource per second: number of units, and 1."""
    kinds: int
    """Number of resources that are units."""
    price: Float64
    """[M, N, J] Prices by model and kind of pricing."""
    work: Float64
    """[M, N] Least cost of a request."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """The slots (P) in which requests (R) of a block can run; those of a request are contiguous."""

    model: Int32
    """[R] Index of the request."""
    request: Int64
    """[P] Row of the request."""
    slot: Int64
    """[P] Slot, from 0."""
    seconds: Float64
    """[P] Seconds of the slot between arrival and deadline."""
    length: float
    """Seconds of a whole slot."""


def most_kept(requests: RequestTable, system: DeviceSet, costs: CostTable, slot: float | None = None) -> int:
    """Upper bound on the requests answered before their deadlines, for any policy.

    ``slot``: seconds; shorter slots give a tighter bound and take longer. Default: half of the median time that a
    request is allowed. Raises ``Unbounded``.
    """
    allowed = requests.deadline - requests.arrival
    bounded = np.isfinite(allowed)
    if not bounded.any():
        return len(requests)
    length = slot or float(np.median(allowed[bounded])) / 2
    urgent = np.flatnonzero(allowed <= _LONGEST * length)
    means = _means(system, costs)
    most = sum(_most_of(_windows(requests, rows, length), means) for rows in _blocks(requests, urgent))
    return most + len(requests) - len(urgent)


def _blocks(requests: RequestTable, urgent: Int64) -> list[Int64]:
    """Blocks, split between arrivals where the fewest earlier requests can still run."""
    arrival, deadline = requests.arrival[urgent], requests.deadline[urgent]
    open_at = np.arange(len(urgent)) - np.searchsorted(np.sort(deadline), arrival)
    borders = [0] if len(urgent) else []
    while borders and len(urgent) - borders[-1] > _MOST:
        first = borders[-1] + _FEWEST
        borders.append(first + int(np.argmin(open_at[first : borders[-1] + _MOST])))
    return [urgent[begin:end] for begin, end in pairwise((*borders, len(urgent)))]


def _windows(requests: RequestTable, rows: Int64, length: float) -> _Windows:
    arrival, deadline = requests.arrival[rows], requests.deadline[rows]
    origin = arrival[0]
    first = np.floor((arrival - origin) / length).astype(np.int64)
    counts = np.floor((deadline - origin) / length).astype(np.int64) + 1 - first
    request = np.repeat(np.arange(len(rows)), counts)
    slot = np.arange(len(request)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    begin, end = origin + slot * length, origin + (slot + 1) * length
    seconds = np.minimum(end, deadline[request]) - np.maximum(begin, arrival[request])
    some = seconds > 0
    return _Windows(requests.model[rows], request[some], slot[some], seconds[some], length)


def _means(system: DeviceSet, costs: CostTable) -> _Means:
    """Prices; any are valid. By these a model costs about 1, wholly on any kind or by its bytes alone."""
    kinds, counts = np.unique(system.kind, return_counts=True)
    shared = bool(np.isfinite(system.bandwidth))
    seconds, moved = costs.seconds[:, kinds], costs.dram_bytes[:, kinds] / system.bandwidth
    tilts, parts = _ways(len(kinds), shared)
    priced = [
        _price(seconds[begin:end], moved[begin:end], tilts, parts) for begin, end in pairwise(costs.first.tolist())
    ]
    means = len(kinds) + shared
    price, work = np.array([price[:, :means] for price, _ in priced]), np.array([work for _, work in priced])
    return _Means(np.append(counts, 1.0)[:means], len(kinds), price, work)


def _ways(kinds: int, shared: bool) -> tuple[Float64, Float64]:
    """[N, K] Cost of a model wholly on each kind; [N] by its bytes."""
    tilts = np.ones((1 + len(_TILTS) * (kinds - 1), kinds))
    for row in range(1, len(tilts)):
        tilts[row, (row - 1) // len(_TILTS)] = _TILTS[(row - 1) % len(_TILTS)]
    if not shared:
        return tilts, np.zeros(len(tilts))
    both = np.repeat(tilts, len(_BYTES), axis=0), np.tile(_BYTES, len(tilts))
    return np.vstack([both[0], np.zeros(kinds)]), np.append(both[1], 1.0)


def _price(seconds: Float64, moved: Float64, tilts: Float64, parts: Float64) -> tuple[Float64, Float64]:
    """[N, K + 1] and [N] of one model. A kind that can run none of its segments has value 0."""
    able = ~np.isnan(seconds)
    whole = np.where(able, seconds, 0.0).sum(axis=0)
    least = np.where(able, moved, np.inf).min(axis=1)
    bytes_whole = float(least[np.isfinite(least)].sum())
    second = tilts / np.where(whole > 0, whole, np.inf)
    byte = parts / (bytes_whole or np.inf)
    costs = second[:, None, :] * seconds + byte[:, None, None] * moved
    work = np.where(able, costs, np.inf).min(axis=2)
    return np.column_stack((second, byte)), np.where(np.isfinite(work), work, 0.0).sum(axis=1)


def _most_of(windows: _Windows, means: _Means) -> int:
    """The bound on the requests of one block."""
    optimize, _ = scipy_modules()
    rows, bounds = _programme(windows, means)
    requests, variables = len(windows.model), rows.shape[1]
    gain, most = np.zeros(variables), np.full(variables, np.inf)
    gain[:requests], most[:requests] = -1.0, 1.0
    limits = np.column_stack((np.zeros(variables), most))
    found = optimize.linprog(gain, A_ub=rows, b_ub=bounds, bounds=limits, method="highs")
    if found.status != 0:
        raise Unbounded(f"no bound on {requests} requests: {found.message}")
    return min(int(np.floor(-found.fun + _TOLERANCE)), requests)


def _programme(windows: _Windows, means: _Means) -> tuple[coo_array, Float64]:
    """The constraints: rows @ variables <= bounds.

    Variables: y [R]; the use of each resource [J, P], and its sum by request [J, R], in slots.
    """
    _, sparse = scipy_modules()
    requests, places, at = len(windows.model), len(windows.slot), np.arange(len(windows.slot))
    count, ways, ones = len(means.limits), means.work.shape[1], np.ones(places)
    of_request = sparse.coo_array((ones, (windows.request, at)), (requests, places))
    of_slot = sparse.coo_array((ones, (windows.slot, at)), (int(windows.slot.max()) + 1, places))
    open_for = sparse.coo_array((windows.seconds / windows.length, (at, windows.request)), (places, requests))
    on_units = np.append(np.ones(means.kinds), np.zeros(count - means.kinds))[None]
    each = sparse.eye_array(count)
    work = [sparse.diags_array(means.work[windows.model, way]) for way in range(ways)]
    price = [
        [sparse.diags_array(column * windows.length) for column in means.price[windows.model, way].T]
        for way in range(ways)
    ]
    rows = sparse.block_array(
        [
            [-open_for, sparse.kron(sparse.coo_array(on_units), sparse.eye_array(places)), None],
            [None, sparse.kron(each, of_slot), None],
            [None, -sparse.kron(each, of_request), sparse.eye_array(count * requests)],
            *([work[way], None, -sparse.hstack(price[way])] for way in range(ways)),
        ]
    )
    slots = np.repeat(means.limits, of_slot.shape[0])
    return rows, np.concatenate([np.zeros(places), slots, np.zeros((count + ways) * requests)])
