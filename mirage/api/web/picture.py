"""A chain's links on a time axis: runs, waits, interruptions and overlaps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mirage.api.web.wording import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.api.documents.chains import LinkDocument
    from mirage.api.documents.timeline import LinkBar
    from mirage.api.web.timeaxis import Axis


@dataclass(frozen=True, slots=True)
class Stroke:
    """One rectangle, by kind.

    ``ran``, ``ahead`` (remaining time limit), ``wait`` (pending), ``gap`` (interruption), ``both`` (overlap).
    """

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Life:
    """The times of a link, epoch seconds."""

    index: int
    running: bool
    submit: int | None
    start: int | None
    end: int | None

    @classmethod
    def of(cls, link: LinkDocument | LinkBar) -> Life:
        """Return the times of ``link``."""
        instants = (seconds_of(link.submit), seconds_of(link.start), seconds_of(link.end))
        return cls(link.index, link.state == "running", *instants)

    @property
    def instants(self) -> list[int]:
        """The known times."""
        return [instant for instant in (self.submit, self.start, self.end) if instant is not None]

    def strokes(self, axis: Axis, now: int) -> Iterator[Stroke]:
        """Yield its wait and its run."""
        if self.submit is not None:
            yield from _stroke("wait", self.submit, self._until(now), axis)
        if self.start is None:
            return
        if self.running:
            end = self.end if self.end is not None else now
            yield from _stroke("ran", self.start, min(end, now), axis)
            yield from _stroke("ahead", max(self.start, now), end, axis)
        elif self.end is not None:  # the run time of a lost link is unknown
            yield from _stroke("ran", self.start, self.end, axis)

    def _until(self, now: int) -> int:
        """Return the end of its wait."""
        if self.start is not None:
            return self.start
        return self.end if self.end is not None else now


@dataclass(frozen=True, slots=True)
class Handover:
    """The handover from one link to the next that ran."""

    before: Life
    after: Life
    seconds: int
    """Handover offset: above 0 an interruption, below 0 an overlap."""

    def strokes(self, axis: Axis) -> Iterator[Stroke]:
        """Yield its interruption or overlap."""
        assert self.before.end is not None
        assert self.after.start is not None
        if self.seconds > 0:
            yield from _stroke("gap", self.before.end, self.after.start, axis)
        elif self.seconds < 0:
            yield from _stroke("both", self.after.start, self.before.end, axis)


def handovers(lives: Sequence[Life]) -> tuple[Handover, ...]:
    """Return the handovers between neighbours that ran, once the first has ended."""
    ran = [life for life in lives if life.start is not None]
    return tuple(
        Handover(before, after, after.start - before.end)
        for before, after in pairwise(ran)
        if not before.running and before.end is not None and after.start is not None
    )


def chain_strokes(links: Sequence[LinkDocument], axis: Axis, now: int) -> tuple[Stroke, ...]:
    """Draw all links in one row, handovers on top."""
    lives = [Life.of(link) for link in links]
    drawn = [stroke for life in lives for stroke in life.strokes(axis, now)]
    return tuple(drawn + [stroke for each in handovers(lives) for stroke in each.strokes(axis)])


def _stroke(kind: str, start: int, end: int, axis: Axis) -> Iterator[Stroke]:
    if end > start and end > axis.start and start < axis.end:
        yield Stroke(kind, axis.at(start), max(0.15, axis.width(start, end)))
