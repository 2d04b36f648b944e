"""A recorded workload played with slurmctld's own passes.

Jobs end and their nodes are free again between the same two passes as there, for which seconds are too coarse.
From a job's end until slurmctld knows that its processes are gone, nodes are completing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

from mirage.bench.fidelity.playing import Player, cluster_of
from mirage.simulator.directed import DirectedSimulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.bench.fidelity.playing import Step
    from mirage.bench.fidelity.recording import Outcome, RecordedJob, Recording

LATE_S = 60
"""slurmctld's log shows ends and free nodes within this time of an end in accounting; others are not estimated."""


class PassPlayer(Player, ABC):
    """Plays a recording to which ``look`` answers at each of its passes."""

    def __init__(self, recording: Recording, *, log: bool = False) -> None:
        """``log``: keep the starts, for ``played``."""
        self.directed = DirectedSimulation(cluster_of(recording, late=LATE_S), start=recording.boot, log=log)
        super().__init__(recording, self.directed)
        self._passes = [time for time, _ in recording.passes]
        self.completing: set[str] = set()
        """Nodes whose last job has ended and that are not free yet."""

    @abstractmethod
    def look(self, kind: str) -> None:
        """Perform a scheduling pass of this kind."""

    def pass_steps(self) -> Iterator[Step]:
        """The workload, the passes, and what comes free between these."""
        yield from self._steps()
        for order, (time, kind) in enumerate(self._recording.passes):
            yield time, 1, order, partial(self.look, kind)
        for outcome in self._outcomes.values():
            end = self._end(outcome)
            for order, (node, time) in enumerate(self._recording.freed.get(outcome.id, {}).items()):
                if time < end + LATE_S and self._passes_between(end, time):
                    yield end, 0, order, partial(self.completing.add, node)
                    yield time, 0, order, partial(self.completing.discard, node)

    def runtime_of(self, job: RecordedJob, outcome: Outcome) -> int:
        """The recorded run time, corrected to the end that slurmctld's log shows."""
        ran = super().runtime_of(job, outcome)
        if outcome.end is None or outcome.state == "CANCELLED":
            return ran
        return ran + self._end(outcome) - outcome.end

    def _end(self, outcome: Outcome) -> int:
        """The second in which a job ended; the next where the last pass of that came before."""
        whole = outcome.end or 0
        told = self._recording.ended.get(outcome.id, whole)
        if not whole <= told < whole + LATE_S:
            return whole
        second = int(told)
        earlier, later = self._passes_between(second, told), self._passes_between(told, second + 1)
        return second + 1 if earlier and not later else second

    def _passes_between(self, first: float, last: float) -> int:
        return bisect_left(self._passes, last) - bisect_left(self._passes, first)
