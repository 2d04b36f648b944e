"""What the stream of events carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant
from mirage.api.documents.timeline import foreseen_by
from mirage.api.documents.visible import Visible

if TYPE_CHECKING:
    from mirage.api.feed import Interest
    from mirage.control.status import Status
    from mirage.store.journal import JournalLine


class EntryEvent(Described):
    """One line of the journal; the event's name is its kind."""

    cursor: int
    """Also the event's id."""
    time: str | None
    chain: str | None
    """``null``: about the whole service."""
    kind: str
    text: str
    link: int | None
    predictor: str
    p10: str | None
    p50: str | None
    p90: str | None
    interruption: int | None
    """Outcomes: seconds without a running link."""
    overlap: int | None


class CycleEvent(Described):
    """What one look at the cluster led to; the event's name is ``cycle``, and it has no id."""

    time: str | None
    cycle: int
    sentence: str
    """About one's own chains; administrators: about all."""
    stale_since: str | None
    chains: dict[str, int]
    """How many of one's own chains (administrators: of all) are active, paused, done, stopped."""
    pending: int
    """Jobs of all users."""
    running: int


def entry_event(line: JournalLine) -> EntryEvent:
    """One line."""
    entry = line.entry
    p10, p50, p90 = foreseen_by(entry.prediction)
    return EntryEvent(
        cursor=line.cursor,
        time=instant(entry.time),
        chain=entry.chain,
        kind=entry.kind,
        text=entry.text,
        link=entry.link or None,
        predictor=entry.predictor,
        p10=p10,
        p50=p50,
        p90=p90,
        interruption=entry.outcome.interruption if entry.outcome else None,
        overlap=entry.outcome.overlap if entry.outcome else None,
    )


def cycle_event(status: Status, interest: Interest) -> CycleEvent:
    """One cycle as whoever listens may see it."""
    seen = Visible(status, interest.name, every=interest.every)
    return CycleEvent(
        time=instant(status.time),
        cycle=status.cycles,
        sentence=seen.sentence,
        stale_since=instant(status.stale_since),
        chains=seen.by_status,
        pending=len(status.snapshot.pending),
        running=len(status.snapshot.running),
    )
