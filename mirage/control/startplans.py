"""Slurm's plans by class of request: asked for within a budget, each class in its turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT, BatchScript
from mirage.domain.plannedstart import NO_PLAN, PlannedStart, PlanStatus
from mirage.slurm.plansettings import plan_settings

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest, Seconds
    from mirage.ports import ChainStore, StartEstimator


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
