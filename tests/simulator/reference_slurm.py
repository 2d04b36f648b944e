"""Slow, plain recomputations of what Slurm documents: fair share, job size, and a controller without backfill.

Sources: SchedMD's pages priority_multifactor.html, classic_fair_share.html, fair_tree.html and slurm.conf(5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.job import Dependency, DependencyKind, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOT_YET = 1 << 60


@dataclass
class Account:
    """An account (with children) or a user (without): its shares and its direct usage."""

    name: str
    shares: int = 1
    children: list[Account] = field(default_factory=list)
    own_usage: float = 0.0
    is_user: bool = False

    @property
    def usage(self) -> float:
        """What it and all below it used."""
        return self.own_usage + sum(child.usage for child in self.children)


def users_of(account: Account) -> list[Account]:
    below = [user for child in account.children for user in users_of(child)]
    return [account, *below] if account.is_user else below


def classic_fair_share(root: Account, dampening: float = 1.0) -> dict[str, float]:
    """F = 2 ** (-UE / S / d), with UE = UA + (UE of the parent - UA) * shares / shares of all siblings."""
    factors: dict[str, float] = {}
    total = root.usage

    def descend(account: Account, share: float, effective: float, top: bool) -> None:
        level = sum(child.shares for child in account.children)
        for child in account.children:
            part = child.shares / level if level else 0.0
            actual = child.usage / total if total else 0.0
            used = actual if top else actual + (effective - actual) * part
            norm = share * part
            if child.is_user:
                factors[child.name] = 2.0 ** (-used / norm / dampening) if norm else 0.0
            else:
                descend(child, norm, used, top=False)

    descend(root, 1.0, 1.0, top=True)
    return factors


def level_fair_share(child: Account, siblings: Sequence[Account]) -> float:
    """Fair Tree's LF = S / U among siblings; infinite without usage, 0 without shares."""
    shares = child.shares / max(1, sum(s.shares for s in siblings))
    used = sum(s.usage for s in siblings)
    if shares == 0:
        return 0.0
    return math.inf if child.usage == 0 else shares / (child.usage / used)


def fair_tree_order(root: Account) -> list[str]:
    """Users from the highest rank to the lowest, where no two siblings tie."""

    def descend(account: Account) -> Iterable[str]:
        children = account.children
        for child in sorted(children, key=lambda c: level_fair_share(c, children), reverse=True):
            if child.is_user:
                yield child.name
            else:
                yield from descend(child)

    return list(descend(root))


def fair_tree(root: Account) -> dict[str, float]:
    """rank / number of users, the best user 1.0, where no two siblings tie."""
    order = fair_tree_order(root)
    return {name: (len(order) - place) / len(order) for place, name in enumerate(order)}


@dataclass
class PlainJob:
    """A job of the plain controller; ``island`` is the set of identical whole nodes that it may use."""

    number: int
    island: str
    partition: str
    tier: int
    priority: int
    user: str
    nodes: int
    runtime: int
    limit: int
    submit: int
    begin: int = 0
    held: bool = False
    dependencies: tuple[Dependency, ...] = ()
    outcome: JobState = JobState.COMPLETED
    start: int = NOT_YET
    end: int = NOT_YET
    state: JobState = JobState.PENDING
    independent: bool = False
    """Its conditions have held at some look at the queue: from then on they are gone."""

    @property
    def key(self) -> tuple[int, int, int]:
        return (-self.tier, -self.priority, self.number)


@dataclass
class PlainController:
    """Slurm's main loop without backfill, looking at the queue after every change and every second.

    In order of tier, then priority, then job number: a job that does not fit closes its partition and takes the
    partition's nodes out of the pass; a job over its user's limit is passed over (no ``assoc_limit_stop``).
    """

    free: dict[str, int]
    """Idle nodes of each island."""
    most_running: int = -1
    """MaxJobs of each user; -1: no limit."""
    jobs: list[PlainJob] = field(default_factory=list)
    now: int = 0

    def submit(self, job: PlainJob) -> None:
        self.jobs.append(job)

    def run_until(self, until: int) -> None:
        """Everything up to and including ``until``: at each second ends first, then the loop."""
        self.schedule()
        while self.now < until:
            self.now += 1
            self.end_jobs()
            self.schedule()

    def end_jobs(self) -> None:
        for job in self.jobs:
            if job.state is JobState.RUNNING and job.end == self.now:
                late = job.runtime > job.limit
                job.state = JobState.TIMEOUT if late else job.outcome
                self.free[job.island] += job.nodes

    def schedule(self) -> None:
        """Look at the queue, and again while a start may have made a job independent."""
        while self.look():
            pass

    def look(self) -> bool:
        """One pass; whether a job started."""
        before = [job.start for job in self.jobs]
        for job in self.jobs:
            job.independent |= all(self.satisfied(job, condition) for condition in job.dependencies)
        closed: set[str] = set()
        for job in sorted(self.jobs, key=lambda j: j.key):
            if not self.eligible(job) or job.island in closed or self.over_limit(job):
                continue
            if job.nodes > self.free[job.island]:
                closed.add(job.island)
                continue
            job.state, job.start = JobState.RUNNING, self.now
            job.end = self.now + min(job.runtime, job.limit)
            self.free[job.island] -= job.nodes
        return before != [job.start for job in self.jobs]

    def eligible(self, job: PlainJob) -> bool:
        return job.state is JobState.PENDING and job.independent and not job.held and job.begin <= self.now

    def over_limit(self, job: PlainJob) -> bool:
        running = sum(j.state is JobState.RUNNING and j.user == job.user for j in self.jobs)
        return self.most_running >= 0 and running >= self.most_running

    def satisfied(self, job: PlainJob, condition: Dependency) -> bool:
        if condition.kind is DependencyKind.SINGLETON:
            others = [j for j in self.jobs if j.user == job.user and j is not job]
            ahead = [j for j in others if j.state is JobState.RUNNING or j.number < job.number]
            return all(j.state.finished for j in ahead)
        other = next(j for j in self.jobs if j.number == condition.job_id)
        match condition.kind:
            case DependencyKind.AFTER:
                begun = other.start if other.state is not JobState.PENDING else NOT_YET
                return begun + condition.delay <= self.now
            case DependencyKind.AFTERANY:
                return other.state.finished
            case DependencyKind.AFTEROK:
                return other.state is JobState.COMPLETED
            case DependencyKind.AFTERNOTOK:
                return other.state.finished and other.state is not JobState.COMPLETED
        raise AssertionError(condition)
