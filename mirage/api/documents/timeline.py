"""What has become of a chain, to be drawn over time: its links, what lies between them, what was predicted."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.conventions.pages import spell_cursor
from mirage.api.documents.chains import (
    EntryDocument,
    EstimateDocument,
    end_of,
    entry_document,
    estimate,
    job_of,
    job_state,
    predecessor_of,
)
from mirage.api.documents.instants import instant
from mirage.api.documents.predictions import quantiles
from mirage.domain.decision import ActionScores, forecast_of
from mirage.domain.job import ABSENT
from mirage.domain.journal import EntryKind
from mirage.domain.link import NO_JOB, LinkState
from mirage.provisioner.gates import not_begun
from mirage.provisioner.limitwarnings import was_warned
from mirage.provisioner.presence import kept_by, kept_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    """Its number in the chain, from 1."""
    job_id: int | None
    """Slurm's number; ``null``: not submitted yet."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_state: str
    """As Slurm calls it."""
    nodes: str
    """Running: Slurm's list of its nodes; empty: none is known."""
    limit: int | None
    """Its own time limit, seconds, as Slurm reported it last; ``null``: not known."""
    warned: bool
    """Whether Slurm had warned it of that limit when it ended."""
    in_vain: bool
    """Whether it started after the end of the chain and has seen that: its script did not run."""
    looks: bool
    """Whether its script waits for the end of the link before it."""
    waited: bool
    """Whether it had nodes, and waited for the end of the link before it until its own: its script did not run."""
    suspended: int
    """Seconds for which Slurm had suspended it, and no other link of the chain ran."""
    kept: str
    """Waiting: what keeps it in the queue: owner or administrator (who holds it), pinned (to its predecessor's
    nodes), held or
    low-rank (by Mirage), dependent (on the end of the links before it), begin (it is not to begin before an
    time); empty: nothing."""
    kept_until: str | None
    """When that is to end; ``null``: not known."""
    planned: str | None
    """When it was decided."""
    submit: str | None
    """When it was submitted."""
    start: str | None
    """When it started."""
    end: str | None
    """Running: when its limit ends it, or its time to make way is over; ``null`` while it is suspended."""
    exit_code: int | None
    """Once it has ended, 128 and the signal where one ended it; ``null``: it has not, or how is not known."""
    wait: int | None
    """Seconds from submission to start."""
    planned_start: str | None
    """Pending: Slurm's own plan."""
    retired: str | None
    """When it was told to make way."""
    reason: str
    """The sentence that decided its submission."""


class HandoverBar(Described):
    """What lies between two links: an interruption, or an overlap, never both."""

    predecessor: int
    """Index of the link that ended."""
    successor: int
    """Index of the link that took over."""
    predecessor_end: str | None
    """When it ended."""
    successor_start: str | None
    """When it started."""
    interruption: int
    """Seconds without a running link."""
    overlap: int
    """Seconds with two running links."""
    saved: EstimateDocument | None
    """Seconds without a running link that submitting the successor early spared; ``null``: not known."""


class ForecastPoint(Described):
    """What one predictor said at one time about the link that was next, and what it decided or would have.

    It predicts when that link would start if it were submitted then; ``started`` is when it really did, whenever
    it was submitted.
    """

    time: str | None
    """When it was said."""
    link: int
    """Its number in the chain, from 1."""
    predictor: str
    """Who said it."""
    shadow: bool
    """Whether it only watched."""
    decision: str
    """submit or hold."""
    reason: str
    """The sentence of the decision."""
    p10: str | None
    """Start predicted: one in ten comes no later."""
    p50: str | None
    """The median; of a forecast of one time, that."""
    p90: str | None
    """Nine in ten come no later."""
    submit_score: float | None
    """Predictors that score actions: how good it is to submit now."""
    hold_score: float | None
    """How good it is to wait."""
    started: str | None
    """When that link really started; ``null``: not yet."""


class Timeline(Described):
    """A chain over time. Links and handovers are all there; what the journal says comes by pages."""

    id: str
    """Of the chain."""
    name: str
    """As its owner calls it."""
    owner: str
    """Whose chain it is."""
    status: str
    """active, paused, done or stopped."""
    sentence: str
    """What the last cycle did about it."""
    now: str | None
    """Of the last cycle; of the last answer, where the cluster does not answer now."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    first: str | None
    """When its first link was planned."""
    last: str | None
    """When its last link ended or will by its limit."""
    links: list[LinkBar]
    """Oldest first."""
    handovers: list[HandoverBar]
    """Oldest first."""
    forecasts: list[ForecastPoint]
    """Of the page's span, newest first; thinned by times where there are more than the page takes."""
    entries: list[EntryDocument]
    """Commands, events, actions, outcomes and troubles, newest first."""
    next: str | None
    """``cursor`` of the next older page; ``null``: this is the last."""


def timeline(
    record: ChainRecord, status: Status, entries: Sequence[JournalLine], said: Sequence[JournalLine], most: int
) -> Timeline:
    """The chain with a page of its journal: ``entries``, at most ``most``, and what was ``said`` meanwhile."""
    started = {link.index: link.start for link in record.links}
    instants = [at for link in record.links for at in (link.planned, link.start, link.end) if at != ABSENT]
    return Timeline(
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
    """The start at P10, P50 and P90; ``None`` where it is not predicted."""
    p10, p50, p90 = quantiles(forecast_of(prediction))
    return instant(p10), instant(p50), instant(p90)
