"""Upper bound on the requests of a mix that a system can answer per second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.programmes import scipy_modules

if TYPE_CHECKING:
    from mirage.domain.request import CostTable, Float64
    from mirage.domain.units import UnitSystem


def capacity(costs: CostTable, system: UnitSystem, mix: Float64) -> float:
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
