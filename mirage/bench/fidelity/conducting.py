"""A recorded workload played with the schedulers' passes at the instants at which slurmctld made them.

When slurmctld looks is in no configuration: backfill waits from the end of its last pass, the main loop for what
happens. All that is decided in a pass is the simulator's own.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

from mirage.bench.fidelity.playing import Player, cluster_of
from mirage.simulator.directed import DirectedSimulation

if TYPE_CHECKING:
    from mirage.bench.fidelity.playing import Played
    from mirage.bench.fidelity.recording import Outcome, RecordedJob, Recording


COMPLETING_S = 60
"""Nodes of a job that has ended are free again within this time; other instants are not believed."""


def conduct(recording: Recording) -> Played:
    """Play the recording; jobs whose turn does not come in its passes do not start."""
    return _Conductor(recording).conduct()


class _Conductor(Player):
    def __init__(self, recording: Recording) -> None:
        cluster = cluster_of(recording, late=COMPLETING_S)
        self._directed = DirectedSimulation(cluster, start=recording.boot, log=True)
        super().__init__(recording, self._directed)
        self._passes = [time for time, _ in recording.passes]

    def conduct(self) -> Played:
        passes = enumerate(self._recording.passes)
        looks = ((time, 1, order, partial(self._directed.look, kind)) for order, (time, kind) in passes)
        self.take([*self._steps(), *looks])
        return self.played()

    def runtime_of(self, job: RecordedJob, outcome: Outcome) -> int:
        """Until its nodes are free again; the second of that counts where its last pass came before."""
        ran, freed = super().runtime_of(job, outcome), self._recording.freed.get(outcome.id)
        if freed is None or outcome.end is None or not 0 <= freed - outcome.end < COMPLETING_S:
            return ran
        earlier = bisect_left(self._passes, freed) - bisect_left(self._passes, int(freed))
        later = bisect_left(self._passes, int(freed) + 1) - bisect_left(self._passes, freed)
        return ran + int(freed) - outcome.end + (earlier > 0 and later == 0)
