"""Chains in the API: times are RFC 3339 in UTC, durations are seconds, ``null`` is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.access.visibility import Visible
from mirage.api.conventions.documents import Described, instant
from mirage.api.routes.chaindefinition import DoneDocument, RequestDocument, done_document, request_document
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_JOB, LinkState
from mirage.domain.objective import ZERO_WITHIN, total_saved
from mirage.provisioner.failures import end_name
from mirage.provisioner.handover import before
from mirage.provisioner.heldlinks import held_indices
from mirage.provisioner.objectives import format_objective
from mirage.provisioner.pending import expected_start, running_until
from mirage.provisioner.service import interruption_of, service_of, suspended_for

if TYPE_CHECKING:
    from mirage.api.routes.pages import ChainListPage
    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link
    from mirage.domain.objective import Alternative


class LinkDocument(Described):
    """One Slurm job of a chain."""

    index: int
    """Number of the link in its chain, from 1."""
    job_id: int | None
    """Slurm's job ID; ``null``: not submitted yet."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_state: str
    """Slurm's job state; REQUEUED: the job went back to the queue, and is now another link or cancelled."""
    nodes: str
    """Node list of a running link, in Slurm's notation; empty: unknown."""
    tag: str
    """Comment of its job, which marks the link."""
    submit: str | None
    """Submission time."""
    start: str | None
    """Start time."""
    end: str | None
    """End time; of a running link: end of its time limit or handover grace. ``null`` while suspended."""
    exit_code: int | None
    """Exit code, or 128 plus the signal that ended it; ``null``: not ended, or unknown."""
    retired: str | None
    """Time at which Mirage signalled it to exit for its successor."""
    looks: bool
    """Whether its script waits for the end of the link before it."""
    reason: str
    """Reason of its submission."""


class EstimateDocument(Described):
    """An estimate in seconds, and its range."""

    p10: int
    """P10: exceeded in 9 of 10 cases."""
    p50: int
    """Median."""
    p90: int
    """P90: exceeded in 1 of 10 cases."""


class ChainDocument(Described):
    """A chain, its links and handovers."""

    id: str
    """Unique ID, never reused."""
    name: str
    """Name given by the owner."""
    owner: str
    """User who owns the chain."""
    state: str
    """starting: no link has run yet; up; down: links have run, but none runs now or Slurm has suspended those that
    do; paused, done, failed or cancelled."""
    since: str | None
    """Start of the state. Up: end of the last interruption. Paused, suspended or cancelled: time of that change.
    Otherwise: end of the last link. ``null``: no link has run."""
    expected: str | None
    """Expected start of the pending link: as Slurm plans it. If the link depends on its predecessor: when that one
    ends, or when Mirage releases the link. ``null``: unknown."""
    unready: int | None
    """Number of the running link that has not reported ready, in a chain whose links report it; ``null``: none."""
    status: str
    """Status: active, paused, done or stopped. Mirage submits links only for active chains."""
    reason: str
    """Reason of a paused, done or stopped status."""
    sentence: str
    """Result of the last cycle for this chain, in words."""
    predictor: str
    """Predictor that times its submissions; empty: the daemon's."""
    aim: str
    """Objective, in the notation of ``mirage submit --aim``."""
    steering: str
    """Requested early submission: auto, off, nice, hold, pin."""
    method: str
    """Early submission in effect (auto resolved); off: Mirage submits links by forecast."""
    handover: str
    """When a predecessor exits for its successor: none, when-ready, on-start, overlap."""
    max_overlap: int
    """Maximum overlap in seconds, after which the predecessor exits in any case; 0: no bound."""
    grace: int
    """Seconds from the signal to the predecessor until it is cancelled."""
    lead: int
    """Seconds before the end of its predecessor at which Mirage releases a held successor."""
    done: DoneDocument
    """Done condition."""
    files_unknown: str
    """Why its done file or handover file cannot be checked, so that neither counts; empty: no problem."""
    tasks_state: str
    """Directory with the task state of its links; empty: none."""
    held_links: list[int] | None
    """Numbers of its held links, to be released; ``null``: it has none, or the cluster is not polled yet."""
    failures: int
    """Consecutive failed links."""
    refusals: int
    """Consecutive submissions rejected by Slurm."""
    rejection: str
    """Slurm's message for the last rejection; empty: Slurm rejects none now."""
    not_before: str | None
    """Earliest next submission, after a failure or a rejection; ``null``: no such bound."""
    request: RequestDocument
    """Job request of each link."""
    links: list[LinkDocument]
    """Oldest first."""
    ended_by: int | None
    """Number of the link whose end ended the chain; ``null``: none."""
    handovers: int
    """Number of handovers."""
    uninterrupted: int
    """Number of handovers with an interruption of at most one minute."""
    interruption: int
    """Seconds without a running link, over all handovers; a current interruption counts until now."""
    suspended: int
    """Seconds of the interruption in which Slurm had suspended its links."""
    overlap: int
    """Seconds with two running links, over all handovers; a current overlap counts until now."""
    saved: EstimateDocument | None
    """Interruption saved by early submissions, in seconds, over all handovers with an estimate: the additional
    interruption if Mirage had submitted each link at its predecessor's end, as predicted at that time."""
    appraised: int
    """Number of handovers with such an estimate."""


class ChainList(Described):
    """Chains in order of creation, and the state of the decision loop."""

    time: str | None
    """Time of the last cycle."""
    sentence: str
    """Result of the last cycle for the caller's chains; with ``all``: for all chains."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    chains: list[ChainDocument]
    """In order of creation."""
    next: str | None = None
    """``cursor`` of the next page; ``null`` on the last page."""


class AnswerDocument(Described):
    """Result of a command."""

    id: str
    """Chain ID."""
    sentence: str
    """Result of the command, in words."""
    warning: str = ""
    """What prevents the submission of links, such as an agent that does not run; empty: nothing known."""
    chain: ChainDocument | None
    """The chain after the cycle that executed the command; ``null``: new, and that cycle takes too long."""


class EntryDocument(Described):
    """A journal entry, of a chain or of the daemon."""

    time: str | None
    """Time of the entry."""
    kind: str
    """command, event, decision, shadow, action, outcome or trouble."""
    text: str
    """Text of the entry."""
    link: int | None
    """Number of the link; ``null``: none."""
    predictor: str
    """Predictor of a decision; otherwise empty."""


class ExplanationDocument(Described):
    """Explanation of a chain's state: result of the last cycle, and the journal."""

    id: str
    """Chain ID."""
    sentence: str
    """Result of the last cycle for this chain, in words."""
    entries: list[EntryDocument]
    """Journal entries, newest first."""


def chain_document(record: ChainRecord, status: Status) -> ChainDocument:
    """Return the document of one chain."""
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
        aim=format_objective(chain.aim),
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
    """Return the document of an estimate."""
    return EstimateDocument(p10=alternative.p10, p50=alternative.p50, p90=alternative.p90) if alternative else None


def chain_list(page: ChainListPage, status: Status, owner: str | None) -> ChainList:
    """Return a page of the chains of one owner, or (``None``) of all owners."""
    return ChainList(
        time=instant(status.time),
        sentence=Visible(status, owner or "", every=owner is None).sentence,
        stale_since=instant(status.stale_since),
        chains=[chain_document(record, status) for record in page.records],
        next=page.further,
    )


def entry_document(entry: Entry) -> EntryDocument:
    """Return the document of one journal entry."""
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
    """Return the job in the last snapshot of a link that has not ended; else ``None``."""
    return None if link.final else status.snapshot.link(link.tag, record.chain.owner)


def predecessor_of(link: Link, record: ChainRecord, status: Status) -> Job | None:
    """Return the job of the link before ``link``, if it has not ended."""
    other = before(record, link)
    return job_of(other, record, status) if other is not None else None


def job_state(link: Link, job: Job | None) -> str:
    """Return Slurm's name of a link's job state."""
    suspended = job is not None and job.state is JobState.SUSPENDED
    return JobState.SUSPENDED.name if suspended else end_name(link)


def end_of(link: Link, record: ChainRecord, job: Job | None) -> str | None:
    """Return when a link ended or will end; ``None``: unknown."""
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
