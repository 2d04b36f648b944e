"""A recorded workload played with the schedulers' passes at the times at which slurmctld made them.

When slurmctld looks is in no configuration: backfill waits from the end of its last pass, the main loop for what
happens. All that is decided in a pass is the simulator's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.bench.fidelity.passes import PassPlayer

if TYPE_CHECKING:
    from mirage.bench.fidelity.playing import Played
    from mirage.bench.fidelity.recording import Recording


def conduct(recording: Recording) -> Played:
    """Play the recording; jobs that never get their turn in its passes do not start."""
    conductor = _Conductor(recording, log=True)
    conductor.take(conductor.pass_steps())
    return conductor.played()


class _Conductor(PassPlayer):
    def look(self, kind: str) -> None:
        self.directed.look(kind, self.completing)
