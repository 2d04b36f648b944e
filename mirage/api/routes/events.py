"""``/api/v1/events``: live events (server-sent events), and their documents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from mirage.api.access.authentication import BYTES_OF_ONE
from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import Reader
from mirage.api.access.visibility import Visible, own_chain
from mirage.api.conventions.documents import Described, Name, instant
from mirage.api.conventions.threads import query
from mirage.api.feed import Interest, TooManyListeners
from mirage.api.routes.timeline import foreseen_by
from mirage.control.status import Status
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from mirage.api.feed import Feed, Listener
    from mirage.api.port import ApiService
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


HEARTBEAT = 15.0
"""Seconds without an event after which a comment keeps the stream alive."""
_CHECK_EVERY = 1.0
"""Seconds between checks that the caller still has access."""
_RETRY = 3_000
_MOST_MISSED = 2_000
"""Missed entries sent after a reconnect; older ones are available at other endpoints."""

_CHARGE = BYTES_OF_ONE // 50
"""Cost of one such entry, in bytes: 50 cost about as much time as a plain request."""

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: journal entries, named by kind (`id` is the cursor), and `cycle`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class EventStream(StreamingResponse):
    """Streaming response that always removes its listener."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], feed: Feed, listener: Listener) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._feed = feed
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends or the client has left."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._listener)


def event_routes(service: ApiService) -> APIRouter:
    """Return the route of the event stream."""
    routes = APIRouter(tags=["events"])

    @routes.get(
        "/events",
        summary="Event stream",
        status_code=200,  # FastAPI cannot derive it from this class
        response_class=EventStream,
        responses=_STREAM,
    )
    async def stream_events(
        caller: Reader,
        request: Request,
        chain: Annotated[Name, Query(description="Chain ID or name; empty: all chains.")] = "",
        kind: Annotated[
            list[EntryKind] | None, Query(max_length=32, description="Kinds of entries; default: all.")
        ] = None,
        last_event_id: Annotated[
            int | None, Header(ge=0, le=2**63 - 1, description="Later events are sent first.")
        ] = None,
    ) -> EventStream:
        """Stream cycles and journal entries of the caller's chains (administrators: of all chains and the daemon).

        A client that is too slow is disconnected. With `Last-Event-ID` it can reconnect and receive the events it
        missed, up to the last 2,000 journal entries.
        """
        if service.feed is None or service.journal is None:
            raise StoreUnavailable("this daemon has no event stream")
        interest = _interest(caller, chain, kind, service)
        try:
            listener = service.feed.listen(interest)
        except TooManyListeners as error:
            raise HTTPException(429, str(error)) from None

        def charge(lines: int) -> None:
            service.gate.charge(caller, request, lines * _CHARGE)

        async def lasts() -> bool:
            return await service.gate.lasts(caller, request)

        return EventStream(_events(listener, last_event_id, service, charge, lasts), service.feed, listener)

    return routes


def _interest(caller: Caller, chain: str, kinds: list[EntryKind] | None, service: ApiService) -> Interest:
    only = own_chain(chain, caller, service).chain.chain_id if chain else None
    return Interest(caller.name, caller.is_admin, only, frozenset(kinds or ()))


async def _events(
    listener: Listener,
    after: int | None,
    service: ApiService,
    charge: Callable[[int], None],
    lasts: Callable[[], Awaitable[bool]],
) -> AsyncIterator[str]:
    """Yield missed events, the current state, then each new event while the caller has access.

    Missed entries count against the caller's rate: a client may request them with each connection.
    """
    interest, last = listener.interest, after or 0
    yield f"retry: {_RETRY}\n\n"
    if after is not None:
        missed, count, last = await query(interest.name, _missed, after, interest, service)
        charge(count)
        if missed:
            yield missed
    yield _spelled(service.status(), interest)
    checked = time.monotonic()
    while (items := await listener.next(HEARTBEAT)) is not None:
        if time.monotonic() - checked >= _CHECK_EVERY:
            if not await lasts():
                return
            checked = time.monotonic()
        if not items:
            yield ": still here\n\n"
        for item in items:
            if isinstance(item, Status) or item.cursor > last:
                yield _spelled(item, interest)


def _missed(after: int, interest: Interest, service: ApiService) -> tuple[str, int, int]:
    """Return the events after a cursor as they are sent, how many lines were read, and the last one's cursor."""
    assert service.journal is not None
    owners = {record.chain.chain_id: record.chain.owner for record in service.status().chains}
    if interest.chain is not None:
        chains = [interest.chain]
    else:
        chains = [chain for chain, owner in owners.items() if owner == interest.name]
    every = interest.every and interest.chain is None
    lines = service.journal.since(after, _MOST_MISSED, None if every else chains)
    found = [
        line
        for line in lines
        if interest.covers(line.entry, owners.get(line.entry.chain, "") if line.entry.chain else "")
    ]
    text = "".join(_spelled(line, interest) for line in found)
    return text, len(lines), found[-1].cursor if found else after


def _spelled(item: JournalLine | Status, interest: Interest) -> str:
    if isinstance(item, Status):
        return f"event: cycle\ndata: {cycle_event(item, interest).model_dump_json()}\n\n"
    document = entry_event(item)
    return f"id: {document.cursor}\nevent: {document.kind}\ndata: {document.model_dump_json()}\n\n"
