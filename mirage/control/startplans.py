"""Slurm's plans: planned starts by class of request within a query budget, and whether pinning delays a start.

Each class of request has its turn. Whether binding a successor to its predecessor's nodes keeps it back is
asked once for each handover.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.decision import NO_PLAN, PlannedStart, PlanStatus
from mirage.domain.errors import ClusterUnavailable, MirageError, NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT, BatchScript
from mirage.provisioner.gates import cannot_look
from mirage.provisioner.handover import why_loose
from mirage.slurm.batchscript import plan_settings
from mirage.slurm.jobrequest import may_spread, may_use_partitions, names_nodes

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainId, ChainRecord
    from mirage.domain.job import Job, JobId, JobRequest, Seconds
    from mirage.domain.link import Link
    from mirage.ports import ChainStore, NodeSharing, StartEstimator

_MOST_TOLD = 10_000
"""Chains that are remembered; with more of them all are forgotten, and asked about again."""


@dataclass(frozen=True, slots=True)
class Pins:
    """``source``: what the cluster says of its nodes; ``None``: nothing, and then no pin is trusted."""

    source: NodeSharing | None
    _told: dict[ChainId, tuple[JobId, str]] = field(default_factory=dict)

    def why_not(self, record: ChainRecord, predecessor: Link, job: Job | None, *, released: bool = False) -> str:
        """Return why the successor cannot be pinned; empty if it can be, or without the method pin.

        ``released``: links are held jobs that Mirage releases, not submissions of its own.
        """
        if record.chain.method is not Steering.PIN:
            return ""
        if unseen := _cannot_look(record.chain, record.chain.request, released=released):
            return unseen
        return why_loose(record, predecessor, job) or (self._shared(record, job) if job is not None else "")

    def unfit(self, record: ChainRecord, predecessor: Job, request: JobRequest) -> str:
        """Why the successor's ``request`` cannot be bound, by its script, which records lack; remembered.

        Empty: it can.
        """
        why = _cannot_look(record.chain, request) or _misplaced(request, predecessor)
        if not why and may_spread(request):
            why = self._asked(predecessor, spreads=True)
        if why:
            self._tell(record.chain.chain_id, predecessor.job_id, why)
        return why

    def rejected(self, record: ChainRecord, predecessor: Job, why: str) -> None:
        """Remember that Slurm takes no successor that is bound to these nodes, as ``why`` says."""
        self._tell(record.chain.chain_id, predecessor.job_id, f"Slurm rejects the pinned job: {why}")

    def _tell(self, chain_id: ChainId, job_id: JobId, why: str) -> None:
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[chain_id] = (job_id, why)

    def _shared(self, record: ChainRecord, job: Job) -> str:
        known = self._told.get(record.chain.chain_id)
        if known is None or known[0] != job.job_id:
            request = record.chain.request
            why = _misplaced(request, job) or self._asked(job, spreads=may_spread(request))
            self._tell(record.chain.chain_id, job.job_id, why)
            return why
        return known[1]

    def _asked(self, job: Job, *, spreads: bool) -> str:
        if self.source is None:
            return "this backend cannot report whether its nodes are shared"
        try:
            return self.source.why_shared(job, spreads=spreads)
        except MirageError as error:
            return f"cannot determine whether its nodes are shared: {error}"


def _cannot_look(chain: Chain, request: JobRequest, *, released: bool = False) -> str:
    """Return why a link of one writer cannot check its predecessor's state as it starts; empty: it can.

    A pin does not hold it while the predecessor is suspended, nor after that has finished the work.
    """
    batch = request.batch
    if batch is None or not chain.one_writer:
        return ""
    if released and chain.steering is Steering.AUTO:
        return "its held job cannot check whether the work is done"
    return cannot_look(batch)


def _misplaced(request: JobRequest, predecessor: Job) -> str:
    if names_nodes(request):
        return "the job requests nodes by name, and Slurm keeps only one node list per job"
    # The predecessor's nodes are the only ones that it may have: a higher partition would take them from that.
    if may_use_partitions(request):
        return "the job names several partitions, and in one of them it may preempt its predecessor"
    if request.partition and predecessor.partition and predecessor.partition != request.partition:
        return f"its predecessor runs in another partition, {predecessor.partition}, and it may preempt that"
    return ""


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """How often Slurm is queried for a planned start; each query costs slurmctld two RPCs and a job ID."""

    per_cycle: int = 1
    """Maximum number of queries per cycle, including users' requests between two cycles."""
    period: Seconds = 600
    """Seconds for which an answer is valid for its class."""
    kept: Seconds = 3_600
    """Maximum age of an answer that is used while its class waits for its turn, s."""


class StartPlans:
    """Queries ``estimator`` for each class of requests at most once per period and within the budget.

    A class is all that ``sbatch`` gets except the job's name and script: owner, partition, nodes, time limit,
    account, QOS, GRES, options. Without a budget every request is queried, as in simulations.
    For the loop's thread alone.
    """

    def __init__(self, estimator: StartEstimator, budget: PlanBudget | None = None) -> None:
        self._estimator = estimator
        self._budget = budget
        self._plans: dict[JobRequest, PlannedStart] = {}
        self._wanted: dict[JobRequest, None] = {}
        """Classes queried since the last cycle began."""
        self._due: set[JobRequest] = set()
        """Those whose turn it is in this cycle."""
        self._left = 0 if budget is None else budget.per_cycle

    def next_cycle(self, now: Seconds) -> None:
        """A cycle begins: the budget is whole again, and the classes that have waited longest have their turn."""
        budget = self._budget
        if budget is None:
            return
        self._plans = {each: plan for each, plan in self._plans.items() if now - plan.asked_at < budget.kept}
        waiting = [each for each in self._wanted if not _holds(self._known(each), now, budget.period)]
        waiting.sort(key=lambda each: self._known(each).asked_at)
        self._due = set(waiting[: budget.per_cycle])
        self._left = budget.per_cycle
        self._wanted = {}

    def of(self, request: JobRequest, now: Seconds, *, queued: bool = True) -> PlannedStart:
        """Return the planned start of such a job, as old as the budget allows, or why there is none.

        Only a ``queued`` request gets a turn in a later cycle: users' requests do not delay those of chains.
        """
        if self._budget is None:
            return self._ask(request, now)
        kind = class_of_plan(request)
        if queued:
            self._wanted[kind] = None
        if not _holds(self._known(kind), now, self._budget.period) and self._may_ask(kind):
            self._plans[kind] = plan = self._ask(request, now)
            self._due.discard(kind)
            self._left -= plan.status is not PlanStatus.NOT_PERMITTED  # Slurm was not queried
        return self._known(kind)

    def _may_ask(self, kind: JobRequest) -> bool:
        """Others' turns are not taken from them."""
        return self._left > (0 if kind in self._due else len(self._due))

    def _known(self, kind: JobRequest) -> PlannedStart:
        return self._plans.get(kind, NO_PLAN)

    def _ask(self, request: JobRequest, now: Seconds) -> PlannedStart:
        try:
            start = self._estimator.estimate_start(request)
        except NotPermitted:
            return PlannedStart(PlanStatus.NOT_PERMITTED, asked_at=now)
        except SubmissionRejected:
            return PlannedStart(PlanStatus.REJECTED, asked_at=now)
        except ClusterUnavailable:
            return PlannedStart(PlanStatus.UNAVAILABLE, asked_at=now)
        if start == ABSENT:
            return PlannedStart(PlanStatus.BEYOND_WINDOW, asked_at=now)
        return PlannedStart.known(start, now)


def _holds(plan: PlannedStart, now: Seconds, period: Seconds) -> bool:
    """Whether Slurm need not be asked again; one that could not be asked is, in its turn."""
    answered = plan.status not in (PlanStatus.NOT_ASKED, PlanStatus.UNAVAILABLE)
    return answered and 0 <= now - plan.asked_at < period


def class_of_plan(request: JobRequest) -> JobRequest:
    """The request without what Slurm's plan does not depend on; equal for equal classes."""
    batch = request.batch
    told = None if batch is None else BatchScript(plan_settings(batch), batch.options)
    return replace(request, name="", tag="", warn=None, batch=told)


@dataclass(frozen=True, slots=True)
class ScriptedEstimator:
    """Gives ``estimator`` each request with its script, which records in memory leave out."""

    estimator: StartEstimator
    store: ChainStore

    def estimate_start(self, request: JobRequest) -> Seconds:
        """As the estimator behind. May raise ``StoreUnavailable`` and ``ConfigError`` as well."""
        return self.estimator.estimate_start(self.store.with_script(request))
