"""Reward of a period. The papers' formulas are not public; these are ours.

Requests are counted by tenant: kept (answered in time so far) and lost (answered late, or present and late even
without any other request). Lost requests stay lost, so both numbers only grow. n is the mean number of requests
that arrive in a period.

- RELMAS-style, deadlines and bandwidth: new kept - new lost + 0.05 n (min(d, 1) - max(d - 1, 0)), where d is the
  bandwidth that is needed at the period's end, divided by that of the system: to use it is good, to need more is
  not;
- ODRA-style, latency and fairness: sum over tenants of (1 + 2 (share of all - share of the tenant)) (new kept -
  new lost), with the shares of kept among kept and lost so far, so that tenants with a lower share count for more;
  less 0.25 for every request that is present at the period's end and not lost, times the period by the time from
  its arrival to its deadline: so a request answered just in time costs a quarter of its gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.allocation.inference.policies.looking import Costs
    from mirage.domain.request import RequestTable
    from mirage.domain.units import SystemView

Float64 = NDArray[np.float64]

BANDWIDTH, FAIRNESS, LATENCY = 0.05, 2.0, 0.25


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts at one time."""

    kept: Float64
    """[T] Kept requests."""
    lost: Float64
    """[T] Lost requests."""
    drawn: float
    """Needed bandwidth, divided by that of the system."""
    hurry: float
    """1 / (deadline - arrival), 1/s, summed over present requests that are not lost."""

    def shares(self) -> Float64:
        """[T] Share of kept among kept and lost; 1 before the first."""
        return np.asarray((self.kept + 1.0) / (self.kept + self.lost + 1.0))


def tally(view: SystemView, requests: RequestTable, costs: Costs) -> Tally:
    """Count the requests of a view."""
    running = view.running[view.running >= 0]
    here = np.concatenate((view.request, running))
    left = costs.least[np.concatenate((view.piece, view.running_piece[view.running >= 0]))]
    # A running request counts as at the beginning of its present segment: that segment's end is not in doubt.
    left[len(view.request) :] -= _present(view, costs)
    ready_at = np.concatenate((np.full(len(view.request), view.now), view.free_at[view.running >= 0]))
    lost_here = requests.deadline[here] - ready_at < left - 1e-12
    lost = (view.tenant_ended - view.tenant_kept).astype(np.float64)
    np.add.at(lost, requests.tenant[here[lost_here]], 1.0)
    alive = here[~lost_here]
    allowed = requests.deadline[alive] - requests.arrival[alive]
    return Tally(
        view.tenant_kept.astype(np.float64),
        lost,
        float(view.drawn.sum() / view.system.bandwidth),
        float((1.0 / allowed).sum()),
    )


def _present(view: SystemView, costs: Costs) -> Float64:
    """[running] Least seconds of the running segments."""
    piece = view.running_piece[view.running >= 0]
    return np.nanmin(costs.seconds[piece], axis=1) if len(piece) else np.zeros(0)


def relmas_reward(before: Tally, after: Tally, coming: float, period: float) -> float:
    """The RELMAS-style reward; ``coming``: n, the mean number of arrivals per period."""
    del period
    gained = (after.kept - before.kept).sum() - (after.lost - before.lost).sum()
    return float(gained + BANDWIDTH * coming * (min(after.drawn, 1.0) - max(after.drawn - 1.0, 0.0)))


def odra_reward(before: Tally, after: Tally, coming: float, period: float) -> float:
    """The ODRA-style reward; ``coming`` is not used."""
    del coming
    kept, lost = before.kept.sum(), before.lost.sum()
    behind = (kept + 1.0) / (kept + lost + 1.0) - before.shares()
    gained = (after.kept - before.kept) - (after.lost - before.lost)
    return float((1.0 + FAIRNESS * behind) @ gained - LATENCY * period * after.hurry)
