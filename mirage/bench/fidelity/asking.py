"""Asked again from the recorded state: what would the simulator start in each pass that Slurm made?

Every job is started when and where Slurm started it, and ends when it ended there, so that at each pass the
simulator decides on the recorded queue. This compares the rules; a whole day left to itself also compares chance,
since one early start shifts everything behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench.fidelity.passes import PassPlayer
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.bench.fidelity.recording import Look, Outcome, Recording
    from mirage.domain.job import JobId

SAME_S = 60
"""A start is alike when both would have made it within this time: a period of the main loop."""


@dataclass(slots=True)
class Asked:
    """Starts and priorities of the simulator along a recording."""

    first: dict[int, int] = field(default_factory=dict)
    """By recorded id: the pass in which it would first have started the job."""
    by: dict[int, str] = field(default_factory=dict)
    """Which kind of pass that was."""
    misplaced: list[int] = field(default_factory=list)
    """Jobs that could not be started where Slurm started them, as the nodes were not free here."""
    priorities: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Time, recorded id, Slurm's priority, the simulator's."""


def ask(recording: Recording) -> Asked:
    """Follow the recording, asking at each of its passes."""
    return _Follower(recording).follow()


class _Follower(PassPlayer):
    """Plays a recording; every start comes from the recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._asked = Asked()

    def follow(self) -> Asked:
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

    def _start(self, outcome: Outcome) -> None:
        job = self._ids.get(outcome.id)
        if job is not None and not self.directed.start(job, expand(outcome.nodes)):
            self._asked.misplaced.append(outcome.id)

    def _compare(self, look: Look) -> None:
        pending, _ = self.simulation.columns()
        ours = dict(zip(pending.job_id.tolist(), pending.priority.tolist(), strict=True))
        for recorded, priority, _ in look.pending:
            job: JobId | None = self._ids.get(recorded)
            if job in ours and priority > 0:
                self._asked.priorities.append((look.time, recorded, priority, ours[job]))


def alike(recording: Recording, asked: Asked, *, by: str = "") -> NDArray[np.bool_]:
    """By job that started (``by``: in that kind of pass): whether the simulator would have started it then."""
    started = [
        outcome
        for outcome in recording.outcomes.values()
        if outcome.start is not None and (not by or outcome.by == by)
    ]
    return np.array([_same(outcome, asked.first.get(outcome.id)) for outcome in started], dtype=np.bool_)


def _same(outcome: Outcome, first: int | None) -> bool:
    return first is not None and outcome.start is not None and abs(first - outcome.start) <= SAME_S
