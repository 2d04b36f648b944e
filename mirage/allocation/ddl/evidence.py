"""Measurements of tasks that ran: work and time, alone and next to others. Sums, so that links add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.allocation.ddl.speeds import Measured

Scene = tuple["Measured", tuple["Measured", ...]]
"""A run and its neighbours: the tasks with devices on one of its nodes, sorted."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Sum of the measurements of one scene."""

    seconds: float = 0.0
    done: float = 0.0
    """Units of work: any unit, equal for all tasks of a model on the same number of devices."""

    @property
    def rate(self) -> float:
        """Work over time, so that long intervals weigh more than short ones."""
        return self.done / self.seconds


@dataclass(slots=True)
class Evidence:
    """Tallies by scene; the order of additions does not matter."""

    tallies: dict[Scene, Tally] = field(default_factory=dict)

    def add(self, run: Measured, beside: Sequence[Measured], seconds: float, done: float) -> None:
        """Add the work of ``run`` next to these. Without time or work nothing is added."""
        if seconds <= 0 or done <= 0:
            return
        scene = run, tuple(sorted(beside, key=_order))
        had = self.tallies.get(scene, Tally())
        self.tallies[scene] = Tally(had.seconds + seconds, had.done + done)

    @property
    def runs(self) -> tuple[Measured, ...]:
        """Runs with a measurement, in a fixed order."""
        return tuple(sorted({run for run, _ in self.tallies}, key=_order))

    @property
    def met(self) -> tuple[Measured, ...]:
        """These runs and their neighbours."""
        return tuple(sorted({each for run, beside in self.tallies for each in (run, *beside)}, key=_order))

    @property
    def total(self) -> float:
        """Sum of all measured seconds."""
        return sum(tally.seconds for tally in self.tallies.values())

    def seconds(self, run: Measured) -> float:
        """Seconds of measurements of a run."""
        return sum(tally.seconds for (of, _), tally in self.tallies.items() if of == run)

    def __iter__(self) -> Iterator[tuple[Measured, tuple[Measured, ...], Tally]]:
        return ((run, beside, tally) for (run, beside), tally in sorted(self.tallies.items(), key=_scene_order))


def _order(run: Measured) -> tuple[str, int, int, str]:
    return run.model, run.devices, run.spread, run.kind


def _scene_order(item: tuple[Scene, Tally]) -> tuple[object, ...]:
    (run, beside), _ = item
    return _order(run), tuple(map(_order, beside))
