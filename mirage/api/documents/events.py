"""Events of the event stream."""

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
    """One journal entry; the event name is its kind."""

    cursor: int
    """Position in the journal, also the event ID."""
    time: str | None
    chain: str | None
    """Chain ID; ``null``: about the daemon."""
    kind: str
    text: str
    link: int | None
    predictor: str
    p10: str | None
    p50: str | None
    p90: str | None
    interruption: int | None
    """Of an outcome: seconds without a running link."""
    overlap: int | None


class CycleEvent(Described):
    """Result of one cycle; the event name is ``cycle``, without an event ID."""

    time: str | None
    cycle: int
    sentence: str
    """Result for the caller's chains; administrators: for all chains."""
    stale_since: str | None
    chains: dict[str, int]
    """Number of the caller's chains (administrators: of all) by status: active, paused, done, stopped."""
    pending: int
    """Pending jobs of all users."""
    running: int


def entry_event(line: JournalLine) -> EntryEvent:
    """Return the event of one journal entry."""
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
    """Return the event of one cycle, limited to what the listener may see."""
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
