"""``/api/v1/chains/{chain_id}/timeline``: links, handovers and forecasts of a chain over time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from mirage.api.access.dependencies import Reader
from mirage.api.access.visibility import own_chain
from mirage.api.conventions.documents import ChainName, Described, LinkIndex, instant
from mirage.api.conventions.threads import QueryRoute
from mirage.api.routes.chaindocuments import (
    EntryDocument,
    EstimateDocument,
    end_of,
    entry_document,
    estimate,
    job_of,
    job_state,
    predecessor_of,
)
from mirage.api.routes.pages import Cursor, read_number, spell_cursor
from mirage.api.routes.predictions import quantiles
from mirage.domain.decision import ActionScores, forecast_of
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.journal import EntryKind
from mirage.domain.link import NO_JOB, LinkState
from mirage.provisioner.gates import not_begun
from mirage.provisioner.pending import kept_by, kept_until
from mirage.provisioner.steering import was_warned
from mirage.store.journal import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirage.api.port import ApiService
    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link
    from mirage.store.journal import JournalLine


class LinkBar(Described):
    """One link as a bar; it waits from ``submit`` to ``start`` and runs from ``start`` to ``end``."""

    index: int
    """Number of the link in its chain, from 1."""
    job_id: int | None
    """Slurm's job ID; ``null``: not submitted yet."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_state: str
    """Slurm's job state."""
    nodes: str
    """Node list of a running link, in Slurm's notation; empty: unknown."""
    limit: int | None
    """Time limit in seconds, as last reported by Slurm; ``null``: unknown."""
    warned: bool
    """Whether Slurm had signalled the time limit before it ended."""
    in_vain: bool
    """Whether it started after the end of the chain, so that its script did not run."""
    looks: bool
    """Whether its script waits for the end of the link before it."""
    waited: bool
    """Whether it had nodes, but waited for the link before it until its own end; its script did not run."""
    suspended: int
    """Seconds in which Slurm had suspended it and no other link of the chain ran."""
    kept: str
    """What keeps a pending link in the queue: owner or administrator (a hold by that user), pinned (to its
    predecessor's nodes), held or low-rank (by Mirage), dependent (on the end of the links before it), begin (a
    begin time). Empty: nothing but the queue."""
    kept_until: str | None
    """Expected end of that; ``null``: unknown."""
    planned: str | None
    """Time of the decision to submit it."""
    submit: str | None
    """Submission time."""
    start: str | None
    """Start time."""
    end: str | None
    """End time; of a running link: end of its time limit or handover grace. ``null`` while suspended."""
    exit_code: int | None
    """Exit code, or 128 plus the signal that ended it; ``null``: not ended, or unknown."""
    wait: int | None
    """Seconds from submission to start."""
    planned_start: str | None
    """Start of a pending link as planned by Slurm."""
    retired: str | None
    """Time at which Mirage signalled it to exit for its successor."""
    reason: str
    """Reason of its submission."""


class HandoverBar(Described):
    """The handover between two links: an interruption or an overlap, never both."""

    predecessor: int
    """Number of the link that ended."""
    successor: int
    """Number of the next link."""
    predecessor_end: str | None
    """End of the predecessor."""
    successor_start: str | None
    """Start of the successor."""
    interruption: int
    """Seconds without a running link."""
    overlap: int
    """Seconds with two running links."""
    saved: EstimateDocument | None
    """Interruption saved by the early submission of the successor, in seconds; ``null``: unknown."""


class ForecastPoint(Described):
    """One forecast for the next link, and the decision based on it.

    The forecast is for a submission at that time. ``started`` is the actual start of the link, whenever it was
    submitted.
    """

    time: str | None
    """Time of the forecast."""
    link: int
    """Number of the link in its chain, from 1."""
    predictor: str
    """Name of the predictor."""
    shadow: bool
    """Whether it was a shadow predictor, whose decision had no effect."""
    decision: str
    """submit, or hold (do not submit yet)."""
    reason: str
    """Reason of the decision."""
    p10: str | None
    """P10 of the start."""
    p50: str | None
    """Median start, or the only predicted time."""
    p90: str | None
    """P90 of the start."""
    submit_score: float | None
    """Score of submitting now, from predictors that score actions; otherwise ``null``."""
    hold_score: float | None
    """Score of waiting."""
    started: str | None
    """Actual start of that link; ``null``: not yet started."""


class TimelineDocument(Described):
    """Timeline of a chain. Links and handovers are complete; journal data comes in pages."""

    id: str
    """Chain ID."""
    name: str
    """Name given by the owner."""
    owner: str
    """User who owns the chain."""
    status: str
    """active, paused, done or stopped."""
    sentence: str
    """Result of the last cycle for this chain, in words."""
    now: str | None
    """Time of the last cycle, or of the cluster's last answer if it does not answer now."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    first: str | None
    """Time of the decision to submit its first link."""
    last: str | None
    """End of its last link, or end of its time limit."""
    links: list[LinkBar]
    """Oldest first."""
    handovers: list[HandoverBar]
    """Oldest first."""
    forecasts: list[ForecastPoint]
    """Forecasts in the period of the page, newest first; thinned evenly if there are more than fit."""
    entries: list[EntryDocument]
    """Journal entries of commands, events, actions, outcomes and problems, newest first."""
    next: str | None
    """``cursor`` of the next older page; ``null`` on the last page."""


def timeline(
    record: ChainRecord, status: Status, entries: Sequence[JournalLine], said: Sequence[JournalLine], most: int
) -> TimelineDocument:
    """Return the timeline with a page of the journal: ``entries``, at most ``most``, and forecasts ``said``."""
    started = {link.index: link.start for link in record.links}
    instants = [at for link in record.links for at in (link.planned, link.start, link.end) if at != ABSENT]
    return TimelineDocument(
        id=record.chain.chain_id,
        name=record.chain.name,
        owner=record.chain.owner,
        status=record.status,
        sentence=status.explained.get(record.chain.chain_id, ""),
        now=instant(status.known_until),
        stale_since=instant(status.stale_since),
        first=instant(min(instants, default=ABSENT)),
        last=instant(max(instants, default=ABSENT)),
        links=[_bar(link, record, status) for link in record.links],
        handovers=list(_handovers(record)),
        forecasts=[_point(line.entry, started) for line in said if line.entry.prediction is not None],
        entries=[entry_document(line.entry) for line in entries],
        next=spell_cursor(entries[-1].cursor) if len(entries) == most else None,
    )


def _bar(link: Link, record: ChainRecord, status: Status) -> LinkBar:
    job = job_of(link, record, status)
    kept = kept_by(record, link, job)
    until = kept_until(record, kept, job, predecessor_of(link, record, status)) if kept and job else ABSENT
    return LinkBar(
        index=link.index,
        job_id=link.job_id if link.job_id != NO_JOB else None,
        state=link.state,
        job_state=job_state(link, job),
        nodes=job.node_list if job is not None and link.running else "",
        limit=link.limit if link.limit != ABSENT else None,
        warned=link.final and link.started and was_warned(record, link),
        in_vain=link.started and not_begun(record, link),
        looks=link.looks,
        waited=link.waited,
        suspended=link.stood,
        kept=kept,
        kept_until=instant(until),
        planned=instant(link.planned),
        submit=instant(link.submit),
        start=instant(link.start),
        end=end_of(link, record, job),
        exit_code=link.exit_code if link.state is LinkState.ENDED else None,
        wait=link.start - link.submit if link.started and link.submit != ABSENT else None,
        planned_start=instant(job.expected_start) if job is not None and link.waiting else None,
        retired=instant(link.retired),
        reason=link.reason,
    )


def _handovers(record: ChainRecord) -> Iterator[HandoverBar]:
    ran = [link.index for link in record.links if link.worked]
    following = dict(itertools.pairwise(ran))
    for link, outcome in record.handovers():
        yield HandoverBar(
            predecessor=link.index,
            successor=following[link.index],
            predecessor_end=instant(outcome.predecessor_end),
            successor_start=instant(outcome.successor_start),
            interruption=outcome.interruption,
            overlap=outcome.overlap,
            saved=estimate(outcome.saved),
        )


def _point(entry: Entry, started: Mapping[int, Seconds]) -> ForecastPoint:
    scores = entry.prediction if isinstance(entry.prediction, ActionScores) else None
    decision, _, reason = entry.text.partition(": ")
    p10, p50, p90 = foreseen_by(entry.prediction)
    return ForecastPoint(
        time=instant(entry.time),
        link=entry.link,
        predictor=entry.predictor,
        shadow=entry.kind is EntryKind.SHADOW,
        decision=decision,
        reason=reason,
        p10=p10,
        p50=p50,
        p90=p90,
        submit_score=scores.submit if scores is not None else None,
        hold_score=scores.hold if scores is not None else None,
        started=instant(started.get(entry.link, ABSENT)),
    )


def foreseen_by(prediction: Prediction | None) -> tuple[str | None, str | None, str | None]:
    """Return P10, P50 and P90 of the start; ``None`` where there is no forecast."""
    p10, p50, p90 = quantiles(forecast_of(prediction))
    return instant(p10), instant(p50), instant(p90)


_SAID = (EntryKind.DECISION, EntryKind.SHADOW)
_HAPPENED = tuple(kind for kind in EntryKind if kind not in _SAID)


def timeline_routes(service: ApiService) -> APIRouter:
    """Return the route of a chain's timeline."""
    routes = APIRouter(route_class=QueryRoute, prefix="/chains", tags=["chains"])

    @routes.get("/{chain_id}/timeline", summary="Timeline of a chain")
    def show_timeline(
        caller: Reader,
        chain_id: ChainName,
        link: Annotated[LinkIndex | None, Query(description="Only journal and forecasts of this link.")] = None,
        cursor: Cursor = None,
        limit: Annotated[
            int, Query(ge=1, le=2000, description="Journal entries, and about as many forecasts.")
        ] = 500,
    ) -> TimelineDocument:
        """Return links, handovers, forecasts with actual starts, and journal entries.

        A page has the newest `limit` entries before `cursor`, and the forecasts of the same period. Many forecasts
        are thinned evenly to those of about `limit` times.
        """
        record = own_chain(chain_id, caller, service)
        if service.journal is None:
            raise StoreUnavailable("this daemon has no journal")
        chain = record.chain.chain_id
        before = read_number(cursor) if cursor else None
        entries = service.journal.read(chain, _HAPPENED, before, limit, link)
        first = entries[-1].cursor if len(entries) == limit else 0
        said = service.journal.thinned(Span(chain, link, first, before), _SAID, limit)
        return timeline(record, service.status(), entries, said, limit)

    return routes
