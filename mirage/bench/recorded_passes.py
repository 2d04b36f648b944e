"""A recorded workload played with the schedulers' passes at the times at which slurmctld made them.

When slurmctld looks is in no configuration: backfill waits from the end of its last pass, the main loop for
what happens. All that is decided in a pass is the simulator's own. Jobs end and their nodes are free again
between the same two passes as there, for which seconds are too coarse. From a job's end until slurmctld knows
that its processes are gone, nodes are completing.

``ask``: what would the simulator start in each pass that Slurm made? Every job is started when and where Slurm
started it, and ends when it ended there, so that at each pass the simulator decides on the recorded queue. This
compares the rules; a whole day left to itself also compares chance, since one early start shifts everything
behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench.recordings import Player, cluster_of
from mirage.simulator.run import DirectedSimulation
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirage.bench.recordings import (
        PlayedRecording,
        RecordedJob,
        RecordedOutcome,
        RecordedQueue,
        Recording,
        Step,
    )
    from mirage.domain.job import JobId

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

    def runtime_of(self, job: RecordedJob, outcome: RecordedOutcome) -> int:
        """The recorded run time, corrected to the end that slurmctld's log shows."""
        ran = super().runtime_of(job, outcome)
        if outcome.end is None or outcome.state == "CANCELLED":
            return ran
        return ran + self._end(outcome) - outcome.end

    def _end(self, outcome: RecordedOutcome) -> int:
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


def conduct(recording: Recording) -> PlayedRecording:
    """Play the recording; jobs that never get their turn in its passes do not start."""
    conductor = _Conductor(recording, log=True)
    conductor.take(conductor.pass_steps())
    return conductor.played()


class _Conductor(PassPlayer):
    def look(self, kind: str) -> None:
        self.directed.look(kind, self.completing)


SAME_S = 60
"""A start is alike when both would have made it within this time: a period of the main loop."""


@dataclass(slots=True)
class AskedPasses:
    """Starts and priorities of the simulator along a recording."""

    first: dict[int, int] = field(default_factory=dict)
    """By recorded id: the pass in which it would first have started the job."""
    by: dict[int, str] = field(default_factory=dict)
    """Which kind of pass that was."""
    misplaced: list[int] = field(default_factory=list)
    """Jobs that could not be started where Slurm started them, as the nodes were not free here."""
    priorities: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Time, recorded id, Slurm's priority, the simulator's."""


def ask(recording: Recording) -> AskedPasses:
    """Follow the recording, asking at each of its passes."""
    return _Follower(recording).follow()


class _Follower(PassPlayer):
    """Plays a recording; every start comes from the recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._asked = AskedPasses()

    def follow(self) -> AskedPasses:
        # Within one second: commands to Slurm, then passes, then what Slurm started in them, then looks.
        happenings = list(self.pass_steps())
        for order, outcome in enumerate(self._outcomes.values()):
            if outcome.start is not None:
                happenings.append((outcome.start + 0.999, 2, order, partial(self._start, outcome)))
        for order, look in enumerate(self._recording.looks):
            happenings.append((look.time + 0.9995, 3, order, partial(self._compare, look)))
        self.take(happenings)
        return self._asked

    def look(self, kind: str) -> None:
        for job in self.directed.would_start(kind, self.completing):
            recorded = self._recorded[job]
            if recorded not in self._asked.first:
                self._asked.first[recorded], self._asked.by[recorded] = self.simulation.now, kind

    def _start(self, outcome: RecordedOutcome) -> None:
        job = self._ids.get(outcome.id)
        if job is not None and not self.directed.start(job, expand(outcome.nodes)):
            self._asked.misplaced.append(outcome.id)

    def _compare(self, look: RecordedQueue) -> None:
        pending, _ = self.simulation.columns()
        ours = dict(zip(pending.job_id.tolist(), pending.priority.tolist(), strict=True))
        for recorded, priority, _ in look.pending:
            job: JobId | None = self._ids.get(recorded)
            if job in ours and priority > 0:
                self._asked.priorities.append((look.time, recorded, priority, ours[job]))


def alike(recording: Recording, asked: AskedPasses, *, by: str = "") -> NDArray[np.bool_]:
    """By job that started (``by``: in that kind of pass): whether the simulator would have started it then."""
    started = [
        outcome
        for outcome in recording.outcomes.values()
        if outcome.start is not None and (not by or outcome.by == by)
    ]
    return np.array([_same(outcome, asked.first.get(outcome.id)) for outcome in started], dtype=np.bool_)


def _same(outcome: RecordedOutcome, first: int | None) -> bool:
    return first is not None and outcome.start is not None and abs(first - outcome.start) <= SAME_S
