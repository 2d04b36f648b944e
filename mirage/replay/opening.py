"""How every episode begins: the trace's own cluster up to a time, then the service's first link on a copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.backends.simulated import SimulatedCluster
from mirage.domain.job import NEVER
from mirage.features.window import LENGTH, SPACING, QueueWindows

if TYPE_CHECKING:
    from mirage.domain.chain import Chain
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig

PATIENCE = 30 * 86_400
"""Maximum wait of one link before the episode is abandoned (s)."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The time at which the first link has just started."""

    cluster: SimulatedCluster
    windows: QueueWindows
    """The queue's last day, on the way here; empty where it is not watched."""

    def copy(self) -> Opening:
        """Return a copy whose cluster and windows can advance independently."""
        return Opening(self.cluster.copy(), self.windows.copy())


class Background:
    """The trace's own simulation, which only moves forward and never sees the service."""

    def __init__(self, trace: JobTable, cluster: ClusterConfig, *, watched: bool) -> None:
        """``watched``: keep windows of the queue."""
        from mirage.simulator.simulation import Simulation

        # Users with jobs had an account then, whatever the cluster has today; and it never had the service's user.
        self.simulation = Simulation(replace(cluster, enforce_associations=False), trace)
        self._watched = watched
        self._windows = QueueWindows()

    def run_until(self, time: Seconds) -> None:
        """Let everything happen that is due by ``time``."""
        _advance(SimulatedCluster(self.simulation), self._windows, time, watched=self._watched)

    def open(self, chain: Chain) -> Opening | None:
        """The chain's first link submitted now on a copy, which is then run until that link starts.

        ``None`` where it would wait longer than ``PATIENCE``. Raises ``SubmissionRejected`` where the cluster
        rejects the link.
        """
        opening = Opening(SimulatedCluster(self.simulation.copy(results=True)), self._windows.copy())
        cluster, request = opening.cluster, chain.link_request(1)
        (start,) = cluster.start_times(request, np.array([cluster.now()]))
        cluster.submit(request)
        if start == NEVER:
            return None
        _advance(cluster, opening.windows, int(start), watched=self._watched)
        return opening


def _advance(cluster: SimulatedCluster, windows: QueueWindows, until: Seconds, *, watched: bool) -> None:
    """Advance, looking at the queue on the way as often as windows have rows, for as long as they reach back."""
    if watched:
        first = max(cluster.now(), until - LENGTH * SPACING) // SPACING + 1
        for time in range(first * SPACING, until + 1, SPACING):
            cluster.advance(time)
            windows.add(cluster.snapshot())
    cluster.advance(until)
