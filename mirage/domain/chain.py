"""Chains: services longer than the walltime limit, each carried by one Slurm job after the other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NewType

from mirage.domain.failurepolicy import USUAL, FailurePolicies
from mirage.domain.files import HANDOVER_FOLDER
from mirage.domain.job import ABSENT, JobId, JobRequest, Seconds, SignalReach, WarnSignal
from mirage.domain.link import NO_JOB, Link, LinkState
from mirage.domain.objective import CHEAPEST, Objective, ObjectiveKind, Outcome, as_submitted_at, submitted_at_end

if TYPE_CHECKING:
    from collections.abc import Mapping

ChainId = NewType("ChainId", str)
"""Names one chain; letters, digits, ``-``, ``_`` and ``.``, because it is part of every link's tag."""

NOTHING_EXPECTED: Mapping[str, JobId] = MappingProxyType({})
"""No link has to be accounted for."""


@dataclass(frozen=True, slots=True)
class DoneCondition:
    """When a chain has done its work; whichever holds first. The default: a link that exits with 0."""

    exit_code: int | None = 0
    """A link that completes with this code ends the chain; ``None``: completing is as reaching the limit.

    A request that names a ``file`` and no code means ``None``."""
    file: str = ""
    """The chain is done when this file exists."""
    links: int = 0
    """Number of links after which the chain is done; 0: no such bound."""
    total_time: Seconds = 0
    """Running time of all links together, overlaps counted twice; 0: no such bound."""


class HandoverPolicy(StrEnum):
    """Whether two links may overlap, and when a running predecessor is ended for its successor."""

    NONE = "none"
    """One writer: Slurm itself starts no link before the one before it is over."""
    OVERLAP = "overlap"
    """The successor may start early; both run until the predecessor's limit."""
    WHEN_READY = "when-ready"
    """Once the successor says that it is ready: an inference service that loads a model first."""
    ON_START = "on-start"
    """As soon as the successor runs; both run while the predecessor saves, for the signal's lead at most."""


@dataclass(frozen=True, slots=True)
class HandoverSettings:
    """How a running predecessor is ended: a signal, a grace period, then cancellation."""

    policy: HandoverPolicy = HandoverPolicy.NONE
    """When the predecessor is ended."""
    signal: WarnSignal = field(default_factory=lambda: WarnSignal("TERM", 60))
    """``lead``: seconds between the signal and the cancellation."""
    max_overlap: Seconds = 0
    """Both run for no longer than this, whatever the policy; 0: no such bound."""

    @property
    def makes_way(self) -> bool:
        """Whether a predecessor ends because its successor runs."""
        return self.policy in (HandoverPolicy.WHEN_READY, HandoverPolicy.ON_START)

    @property
    def together(self) -> float:
        """Maximum overlap, s; the predecessor is ended then.

        How long a successor takes to be ready is not known: without a bound it counts as the signal's lead.
        """
        match self.policy:
            case HandoverPolicy.NONE | HandoverPolicy.OVERLAP:
                return self.max_overlap or float("inf")
            case HandoverPolicy.WHEN_READY:
                return self.max_overlap or self.signal.lead
            case HandoverPolicy.ON_START:
                return self.signal.lead


class Steering(StrEnum):
    """How a successor that is submitted as its predecessor starts is held until it is due.

    It grows older in the queue meanwhile, where the site lets it (DESIGN.md, "Steering"): held jobs age only with
    ``ACCRUE_ALWAYS``, the others everywhere.
    """

    AUTO = "auto"  # what suits the chain: see ``Chain.method``
    OFF = "off"
    NICE = "nice"
    """A high nice value; an idle node takes it all the same."""
    HOLD = "hold"
    """Held and released."""
    PIN = "pin"
    """Bound to its predecessor's nodes, for whose end Slurm plans it; only where no second link fits there."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A service as its owner described it, and changes only by their word."""

    chain_id: ChainId
    """Unique ID, never reused."""
    name: str
    """Name that its owner gave."""
    owner: str
    """User on whose behalf links are submitted."""
    request: JobRequest
    """Every link is this request with the link's tag, and the owner as user."""
    done: DoneCondition = DoneCondition()
    """When it has done its work."""
    failures: FailurePolicies = USUAL
    """Actions after a failed link, by kind of failure."""
    handover: HandoverSettings = HandoverSettings()
    """Settings for the end of a running predecessor."""
    steering: Steering = Steering.OFF
    """Mode in which a pending successor is held."""
    lead: Seconds = 600
    """Time before its predecessor's end at which a held successor is released; 0, or one writer: stays pinned."""
    predictor: str = ""
    """Which predictor chooses when its links are submitted; empty: the daemon's."""
    aim: Objective = CHEAPEST
    """Objective of its handovers."""
    tasks_state: str = ""
    """Directory in which its links write the states of their tasks; empty: they are not shown."""

    @property
    def one_writer(self) -> bool:
        """Whether no two links may run together."""
        return self.handover.policy is HandoverPolicy.NONE

    @property
    def method(self) -> Steering:
        """How its successors are held; never ``AUTO``.

        A pinned successor starts as soon as its predecessor's nodes are free, with its age: never later than one
        that is submitted then. That is also the best for few interruptions. Not where the owner asks for a
        forecast or for some overlap, or for jobs that Slurm may requeue.
        """
        if self.steering is not Steering.AUTO:
            return self.steering
        forecast = bool(self.predictor) or self.aim.kind is ObjectiveKind.OVERLAP
        return Steering.OFF if forecast or self.request.requeue is True else Steering.PIN

    @property
    def release_lead(self) -> Seconds:
        """How long before its predecessor's end a successor is released; with ``AUTO`` if that ends early."""
        if self.steering is not Steering.AUTO:
            return self.lead
        return min(self.lead, self.request.limit // 10) if self.handover.makes_way else 0

    @property
    def done_by_zero(self) -> bool:
        """Whether exit code 0 always means that the work is done: no link exits because Slurm warned it."""
        return self.done.exit_code == 0 and self.request.warn is None

    @property
    def told(self) -> SignalReach:
        """Which processes get the signal to exit: those that get Slurm's warning, if the owner requested one."""
        if self.handover.signal.batch_only:
            return SignalReach.BATCH
        return SignalReach.ALL if self.request.warn is None else SignalReach.STEPS

    def tag(self, index: int) -> str:
        """The mark that link ``index`` (from 1) carries as its job's comment."""
        return f"mirage:{self.chain_id}:{index}"

    def handover_file(self, index: int) -> str:
        """Handover file that link ``index`` touches when it is ready; empty where no directory is known."""
        directory = self.request.batch.directory if self.request.batch else ""
        return f"{directory}/{HANDOVER_FOLDER}/{self.chain_id}.{index}.ready" if directory else ""

    def owner_holds(self, index: int) -> bool:
        """Whether ``--hold`` keeps link ``index`` until its owner releases it: as ``--begin``, the first alone."""
        return self.request.held and index == 1

    def link_request(self, index: int, previous: JobId = NO_JOB) -> JobRequest:
        """Request for link ``index`` after the job ``previous``; the owner's hold is for the first link alone."""
        held = self.owner_holds(index)
        request = replace(self.request, user=self.owner, tag=self.tag(index), held=held)
        if self.method is Steering.PIN and (self.one_writer or not request.requeue):
            request = replace(request, requeue=False)  # its successor waits for its nodes, not for its end
        if request.batch is None:
            return request
        own = {
            "MIRAGE_CHAIN_ID": str(self.chain_id),
            "MIRAGE_LINK": str(index),
            "MIRAGE_PREV_JOBID": str(previous) if previous else "",
            "MIRAGE_HANDOVER_FILE": self.handover_file(index),
        } | ({"MIRAGE_TASKS_STATE": self.tasks_state} if self.tasks_state else {})
        environment = tuple((dict(request.batch.environment) | own).items())
        return replace(request, batch=replace(request.batch, environment=environment))


class ChainStatus(StrEnum):
    """Status of a chain: whether it gets further links."""

    ACTIVE = "active"
    PAUSED = "paused"
    """Its links continue to run; no new link is submitted."""
    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """All that is stored of a chain: what it is, its links so far and what holds it up."""

    chain: Chain
    links: tuple[Link, ...] = ()
    status: ChainStatus = ChainStatus.ACTIVE
    reason: str = ""
    """Why it is paused, done or stopped."""
    failures: int = 0  # links failed in a row
    refusals: int = 0
    """Submissions rejected in a row."""
    not_before: Seconds = 0
    """No link is submitted before this time (back-off)."""
    cancel_running: bool = False  # once it is over, its running links are cancelled too, not only the waiting one
    ended_by: int = 0  # the link whose end ended the chain
    unmarked: bool = False  # its jobs were last seen without their marks: their comments are replaced
    resent: int = 0  # the last link that was submitted again, no answer having come
    refused_since: Seconds = ABSENT
    """When Slurm rejected the first of its submissions rejected in a row."""
    refused: Seconds = ABSENT
    """When it rejected the last of them."""
    rejection: str = ""
    """Slurm's words on the last of them."""
    permanent: int = 0  # how many of them no retry can fix
    lost: Seconds = 0  # for which nothing had run as it ended, after a link that had run
    paused: Seconds = ABSENT  # since when, while it is
    cancelled: Seconds = ABSENT
    """When a person ended it, by a word to Mirage."""

    @property
    def over(self) -> bool:
        """Whether no further link will ever be submitted."""
        return self.status in (ChainStatus.DONE, ChainStatus.STOPPED)

    @property
    def waiting(self) -> Link | None:
        """The link that is submitted or about to be; there is never more than one."""
        return next((link for link in reversed(self.links) if link.waiting), None)

    @property
    def head(self) -> Link | None:
        """The running link that ends last, which the next one is to follow; a suspended one if no other runs."""
        running = [link for link in self.links if link.running]
        apart = self.chain.one_writer  # then a later one waits for the end of the suspended one
        return max(running, key=lambda link: (apart or link.suspended == ABSENT, link.end), default=None)

    @property
    def stopped_running(self) -> Link | None:
        """The last link that ran, where the service is to run on and none runs now."""
        if self.status is not ChainStatus.ACTIVE or self.head is not None:
            return None
        return next((link for link in reversed(self.links) if link.started and link.final), None)

    @property
    def live(self) -> tuple[Link, ...]:
        """Links of which the cluster still may have a job."""
        return tuple(link for link in self.links if not link.final)

    @property
    def next_index(self) -> int:
        """Index of the link that would come next."""
        return len(self.links) + 1

    def with_link(self, link: Link) -> ChainRecord:
        """The record with ``link`` in the place of its index (appended when it is the next)."""
        at = link.index - 1
        return replace(self, links=(*self.links[:at], link, *self.links[at + 1 :]))

    def outcomes(self) -> tuple[Outcome, ...]:
        """The handovers complete so far."""
        return tuple(outcome for _, outcome in self.handovers())

    def handovers(self) -> tuple[tuple[Link, Outcome], ...]:
        """Each link after which another one has started, with how that went, once it and all before have ended.

        Not of a link whose end is unknown.
        A link may outlast its successor, and those after it, where these fail. What counts is whether any link ran
        before the one that starts: until the last of them ends, and no longer than the one that starts. One that
        waits for the end of the one before, with nodes already, works from then on.
        """
        found: list[tuple[Link, Outcome]] = []
        last = ABSENT
        needed = self.links[: self.ended_by or None]  # what started then had nothing to take over
        for before, after in itertools.pairwise([link for link in needed if link.worked]):
            if not before.final or before.end == ABSENT:
                break
            if not before.end_known:
                continue
            last = max(last, before.end)
            both_end = min(last, after.end) if after.final and after.end != ABSENT else last
            alternative = after.alternative and after.alternative.at_least(after.start - both_end)
            if submitted_at_end(after.submit, both_end, before.limit_end):
                alternative = as_submitted_at(both_end, after.submit, after.start)
            start = max(after.start, both_end) if after.looks else after.start
            found.append((before, Outcome(both_end, start, alternative)))
        return tuple(found)

    def check(self) -> None:
        """Raise ``AssertionError`` where the record contradicts itself."""
        story = f"{self.chain.chain_id}: {self.status} {self.links}"
        assert [link.index for link in self.links] == list(range(1, len(self.links) + 1)), story
        assert all(link.tag == self.chain.tag(link.index) for link in self.links), story
        assert sum(link.waiting for link in self.links) <= 1, f"two links wait: {story}"
        assert self.failures >= 0, story
        assert self.refusals >= 0, story
        for link in self.links:
            assert link.started or not link.running, f"runs but never started: {story}"
            assert link.job_id != NO_JOB or link.state in (LinkState.PLANNED, LinkState.LOST), f"no job: {story}"
            assert not link.started or not link.final or link.end >= link.start, f"ends too early: {story}"
