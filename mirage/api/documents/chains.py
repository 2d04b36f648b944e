"""What the API answers: times are RFC 3339 in UTC, durations are seconds, ``null`` is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.chainrequest import DoneDocument, RequestDocument, done_document, request_document
from mirage.api.documents.instants import instant
from mirage.api.documents.visible import Visible
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_JOB, LinkState
from mirage.domain.outcome import ZERO_WITHIN, total_saved
from mirage.provisioner.aims import spell_aim
from mirage.provisioner.handover import before
from mirage.provisioner.heldlinks import held_indices
from mirage.provisioner.presence import expected_start, running_until
from mirage.provisioner.requeues import end_name
from mirage.provisioner.service import interruption_of, service_of
from mirage.provisioner.suspension import suspended_for

if TYPE_CHECKING:
    from mirage.api.routes.selection import Page
    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link
    from mirage.domain.outcome import Alternative


class LinkDocument(Described):
    """One Slurm job of a chain."""

    index: int
    """Its number in the chain, from 1."""
    job_id: int | None
    """Slurm's number; ``null``: not submitted yet."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_state: str
    """As Slurm calls it; REQUEUED: its job went back to the queue, and is another link or cancelled."""
    nodes: str
    """Running: Slurm's list of its nodes; empty: none is known."""
    tag: str
    """What its job carries as comment."""
    submit: str | None
    """When it was submitted."""
    start: str | None
    """When it started."""
    end: str | None
    """Running: when its limit ends it, or its time to make way is over; ``null`` while it is suspended."""
    exit_code: int | None
    """Once it has ended, 128 and the signal where one ended it; ``null``: it has not, or how is not known."""
    retired: str | None
    """When it was told to make way."""
    looks: bool
    """Whether its script waits for the end of the link before it."""
    reason: str
    """The sentence that decided its submission."""


class EstimateDocument(Described):
    """An estimate in seconds, and its range."""

    p10: int
    """Nine times in ten it is more."""
    p50: int
    """As often more as less."""
    p90: int
    """Nine times in ten it is less."""


class ChainDocument(Described):
    """A chain, its links and how they handed over."""

    id: str
    """Its own, never given twice."""
    name: str
    """As its owner calls it."""
    owner: str
    """Whose links they are."""
    state: str
    """starting: no link has run yet; up; down: links ran, none runs now, or Slurm has suspended those that run;
    paused, done, failed or cancelled."""
    since: str | None
    """Up: since when without interruption; paused, suspended or cancelled: when that was; else when the last link
    ended. ``null``: none has run."""
    expected: str | None
    """When the link that waits in the queue may start: as Slurm plans it or, where its predecessor keeps it back,
    when that one is to end or Mirage releases it. ``null``: not known."""
    unready: int | None
    """The running link that has not said that it is ready, as links of this chain do; ``null``: none."""
    status: str
    """Whether links are submitted: active, paused, done or stopped."""
    reason: str
    """Why it is paused, done or stopped."""
    sentence: str
    """What the last cycle did about it."""
    predictor: str
    """Which times its links; empty: the daemon's."""
    aim: str
    """As ``mirage submit --aim`` takes it."""
    steering: str
    """How a successor in the queue is held, as asked: auto, off, nice, hold, pin."""
    method: str
    """The same, auto resolved; off: links are submitted by forecast."""
    handover: str
    """How a predecessor that still runs makes way: none, when-ready, on-start, overlap."""
    max_overlap: int
    """Seconds after which it makes way in any case; 0: no bound."""
    grace: int
    """Seconds that it has for that, from its signal on."""
    lead: int
    """Seconds before the end of its predecessor at which a successor that is held is released."""
    done: DoneDocument
    """When it has done its work."""
    files_unknown: str
    """Why its done-file or handover file cannot be checked, so that neither counts; empty: they can."""
    tasks_state: str
    """Directory in which its links keep how their tasks stand; empty: nobody is to look."""
    held_links: list[int] | None
    """Indices of its held links, to be released; ``null``: it has none, or the cluster is not polled yet."""
    failures: int
    """Links in a row that have failed."""
    refusals: int
    """Submissions in a row that Slurm has rejected."""
    rejection: str
    """Slurm's words of the last one; empty: it rejects none now."""
    not_before: str | None
    """No link is submitted earlier, after a failure or a rejection."""
    request: RequestDocument
    """What each link asks for."""
    links: list[LinkDocument]
    """Oldest first."""
    ended_by: int | None
    """The link whose end has ended the chain; ``null``: none has."""
    handovers: int
    """How many there have been."""
    uninterrupted: int
    """How many of them left the service without a running link for a minute at most."""
    interruption: int
    """Seconds without a running link, over all handovers; an interruption that lasts counts until now."""
    suspended: int
    """Seconds of these for which Slurm had suspended its links."""
    overlap: int
    """Seconds with two running links, over all handovers, one that continues included."""
    saved: EstimateDocument | None
    """Seconds without a running link that early submissions spared, over all handovers of which it is known: what
    submitting each link at its predecessor's end would have lost more, as predicted at those ends."""
    appraised: int
    """Of how many handovers that is known."""


class ChainList(Described):
    """Chains in order of creation, and the state of the loop that keeps them."""

    time: str | None
    """Of the last cycle."""
    sentence: str
    """What the last cycle did about one's own chains; ``all``: about those of all."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    chains: list[ChainDocument]
    """In order of creation."""
    next: str | None = None
    """The next page's cursor; ``null``: this is the last."""


class AnswerDocument(Described):
    """What came of a command."""

    id: str
    """The chain's."""
    sentence: str
    """What came of the command, for people."""
    warning: str = ""
    """What keeps its links from being submitted, such as an agent that does not run; empty: nothing known."""
    chain: ChainDocument | None
    """As the cycle that executed left it; ``null`` for a new one where that takes longer than one waits."""


class EntryDocument(Described):
    """One line of the journal."""

    time: str | None
    """When."""
    kind: str
    """command, event, decision, shadow, action, outcome or trouble."""
    text: str
    """What happened, for people."""
    link: int | None
    """The link that it is about; ``null``: none."""
    predictor: str
    """Who said so, of decisions."""


class Explanation(Described):
    """Why a chain is as it is: the present sentence, and the journal, newest first."""

    id: str
    """Of the chain."""
    sentence: str
    """What the last cycle did about it."""
    entries: list[EntryDocument]
    """Of the journal, newest first."""


def chain_document(record: ChainRecord, status: Status) -> ChainDocument:
    """One chain as ``status`` shows it."""
    chain, outcomes, service = record.chain, record.outcomes(), service_of(record, status.known_until)
    return ChainDocument(
        id=chain.chain_id,
        name=chain.name,
        owner=chain.owner,
        state=service.state,
        since=instant(service.since),
        expected=_expected(record, status),
        unready=_unready(record, status),
        status=record.status,
        reason=record.reason,
        sentence=status.explained.get(chain.chain_id, ""),
        predictor=chain.predictor,
        aim=spell_aim(chain.aim),
        steering=chain.steering,
        method=chain.method,
        handover=chain.handover.policy,
        max_overlap=chain.handover.max_overlap,
        grace=chain.handover.signal.lead,
        lead=chain.release_lead,
        done=done_document(chain.done),
        files_unknown=status.files_unknown.get(chain.chain_id, ""),
        tasks_state=chain.tasks_state,
        held_links=None if status.held is None else list(held_indices(chain, status.held)),
        failures=record.failures,
        refusals=record.refusals,
        rejection=record.rejection,
        not_before=instant(record.not_before) if record.not_before > status.time and not record.over else None,
        request=request_document(record),
        links=[_link(link, record, status) for link in record.links],
        ended_by=record.ended_by or None,
        handovers=len(outcomes),
        uninterrupted=sum(outcome.interruption <= ZERO_WITHIN for outcome in outcomes),
        interruption=interruption_of(record, status.known_until),
        suspended=suspended_for(record, status.known_until),
        overlap=sum(outcome.overlap for outcome in outcomes) + service.overlap,
        saved=estimate(total_saved(outcomes)),
        appraised=sum(outcome.saved is not None for outcome in outcomes),
    )


def estimate(alternative: Alternative | None) -> EstimateDocument | None:
    """The same for programs."""
    return EstimateDocument(p10=alternative.p10, p50=alternative.p50, p90=alternative.p90) if alternative else None


def chain_list(page: Page, status: Status, owner: str | None) -> ChainList:
    """Some chains of one owner, or (``None``) of all, as ``status`` shows them."""
    return ChainList(
        time=instant(status.time),
        sentence=Visible(status, owner or "", every=owner is None).sentence,
        stale_since=instant(status.stale_since),
        chains=[chain_document(record, status) for record in page.records],
        next=page.further,
    )


def entry_document(entry: Entry) -> EntryDocument:
    """One line of the journal."""
    return EntryDocument(
        time=instant(entry.time),
        kind=entry.kind,
        text=entry.text,
        link=entry.link or None,
        predictor=entry.predictor,
    )


def _expected(record: ChainRecord, status: Status) -> str | None:
    link = record.waiting
    job = job_of(link, record, status) if link is not None else None
    if link is None or job is None or status.snapshot.stale:
        return None
    states = (each for each in status.snapshot.partitions if each.name == job.partition)
    idle = any(each.idle >= job.nodes for each in states)
    return instant(expected_start(record, link, job, predecessor_of(link, record, status), idle=idle))


def _unready(record: ChainRecord, status: Status) -> int | None:
    running = [link.index for link in record.links if link.running]
    return running[-1] if running and record.chain.chain_id in status.unready else None


def job_of(link: Link, record: ChainRecord, status: Status) -> Job | None:
    """The job of a link that is not over, as the last snapshot has it."""
    return None if link.final else status.snapshot.link(link.tag, record.chain.owner)


def predecessor_of(link: Link, record: ChainRecord, status: Status) -> Job | None:
    """The job that the waiting ``link`` follows, where it is not over."""
    other = before(record, link)
    return job_of(other, record, status) if other is not None else None


def job_state(link: Link, job: Job | None) -> str:
    """As Slurm calls it."""
    suspended = job is not None and job.state is JobState.SUSPENDED
    return JobState.SUSPENDED.name if suspended else end_name(link)


def end_of(link: Link, record: ChainRecord, job: Job | None) -> str | None:
    """When it ended or is to end; ``None``: not known."""
    if link.running:
        return instant(running_until(record, link, job))
    return instant(link.end if link.end_known else ABSENT)


def _link(link: Link, record: ChainRecord, status: Status) -> LinkDocument:
    job = job_of(link, record, status)
    return LinkDocument(
        index=link.index,
        job_id=link.job_id if link.job_id != NO_JOB else None,
        state=link.state,
        job_state=job_state(link, job),
        nodes=job.node_list if job is not None and link.running else "",
        tag=link.tag,
        submit=instant(link.submit),
        start=instant(link.start),
        end=end_of(link, record, job),
        exit_code=link.exit_code if link.state is LinkState.ENDED else None,
        retired=instant(link.retired),
        looks=link.looks,
        reason=link.reason,
    )
