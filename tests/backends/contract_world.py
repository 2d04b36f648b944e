"""A cluster as one test of the contract sees it: what there is, what jobs do, how time passes."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BackEndLost, ClusterUnavailable
from mirage.domain.job import Job, JobChange, JobId, JobRequest, JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mirage.ports import Actuator, Cluster, StartEstimator

MINUTE = 60
HOUR = 60 * MINUTE
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Facts:
    """The cluster under test, and the limits of its adapter."""

    user: str
    """In whose name the actuator acts."""
    partition: str
    """A partition whose nodes are all idle when a test begins."""
    nodes: int
    """Its nodes; none belongs to another partition that the test uses."""
    longest: int
    """Its MaxTime (s)."""
    gres: tuple[str, int] = ()  # type: ignore[assignment]
    """(name, count a node) in ``gres_partition``; empty: none."""
    gres_partition: str = ""
    slack: int = 2 * MINUTE
    """Seconds by which times may differ from the requested ones, because of the controller's intervals."""
    other_user: str = ""
    """A user whose jobs are not the actuator's; empty: there are no other users."""
    accounts: bool = True
    """Unknown accounts are rejected."""
    signals: bool = True
    """Jobs are real processes that see their signals."""
    accounting: bool = True
    """Ended jobs that the controller has forgotten are found."""
    by_id: bool = True
    """Links are found by their job IDs as well, whatever their comments."""


@dataclass(frozen=True)
class Doing:
    """A job's behaviour after its start."""

    runs: int | None = None
    """Seconds; ``None``: until its limit ends it."""
    exit_code: int = 0
    on_usr1: int | None = None
    """Exit code with which its batch shell answers SIGUSR1; ``None``: as the system does."""


class World(ABC):
    """A cluster as one test sees it. Times are the cluster's."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator | None = None
    facts: Facts

    @abstractmethod
    def arrange(self, request: JobRequest, doing: Doing) -> JobRequest:
        """The request whose job does so."""

    @abstractmethod
    def pass_time(self) -> None:
        """Let a little time pass: some seconds of the cluster's."""

    @abstractmethod
    def controller_down(self) -> AbstractContextManager[None]:
        """While entered, no request reaches the controller."""

    def foreign_job(self) -> JobId:
        """A pending job of ``facts.other_user``; only asked where there is one."""
        raise NotImplementedError

    def forget(self, job_id: JobId) -> None:
        """The controller forgets this ended job; accounting does not. Only asked with ``facts.accounting``."""
        raise NotImplementedError

    # What the tests are written in

    def tag(self) -> str:
        """A tag never used before, also not by other processes."""
        return f"mirage:contract-{os.getpid()}-{next(_NUMBERS)}:1"

    def request(self, doing: Doing | None = None, **changes: Any) -> JobRequest:
        """One node for an hour, tagged."""
        plain = JobRequest("link", self.facts.user, HOUR, 1, self.facts.partition, tag=self.tag())
        return self.arrange(replace(plain, **changes), doing or Doing())

    def submit(self, doing: Doing | None = None, **changes: Any) -> tuple[JobRequest, JobId]:
        request = self.request(doing, **changes)
        return request, self._submitted(request)

    def _submitted(self, request: JobRequest, tries: int = 5) -> JobId:
        """Like the daemon where a busy slurmrestd drops the connection: first it searches for the job."""
        for _ in range(tries):
            try:
                return self.actuator.submit(request)
            except BackEndLost:
                if (found := self.cluster.snapshot().links.get(request.tag)) is not None:
                    return found.job_id
        return self.actuator.submit(request)

    def update(self, job_id: JobId, change: JobChange, tries: int = 50) -> None:
        """Change a job; a controller that has just got it may ask to try again, accounting not having it yet."""
        for _ in range(tries):
            with suppress(ClusterUnavailable):
                return self.actuator.update(job_id, self.facts.user, change)
            self.pass_time()
        return self.actuator.update(job_id, self.facts.user, change)

    def fill(self) -> JobId:
        """A job on all nodes of the partition, seen running."""
        request, job_id = self.submit(nodes=self.facts.nodes, limit=2 * HOUR)
        self.until(request, JobState.RUNNING)
        return job_id

    def job(self, request: JobRequest) -> Job:
        """The job as a snapshot shows it now."""
        return self.cluster.snapshot().links[request.tag]

    def until(self, request: JobRequest, state: JobState, patience: int = 3 * HOUR) -> Job:
        """Its job once it is in this state; fails when it ends otherwise or takes longer than ``patience`` s."""
        return self.when(request, lambda job: job.state is state, patience)

    def when(self, request: JobRequest, holds: Callable[[Job], bool], patience: int = 3 * HOUR) -> Job:
        snapshot = first = self.cluster.snapshot()
        while snapshot.time - first.time <= patience:
            job = snapshot.links.get(request.tag)
            if job is not None and holds(job):
                return job
            assert job is None or not job.state.finished, f"ended otherwise: {job}"
            self.pass_time()
            snapshot = self.cluster.snapshot()
        raise AssertionError(f"not within {patience} s: {snapshot.links.get(request.tag)}")
