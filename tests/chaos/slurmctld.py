"""A small slurmctld with its accounting, in memory: what happens to jobs, and what is remembered of it.

Made for disorder: jobs are requeued, preempted and lost, nodes die, accounting lags. It knows nothing of Mirage:
what it remembers can be held against what Mirage wrote down.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirage.backends.simulated import SimulatedExecution
from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, NEVER, DependencyKind, Job, JobId, JobRequest, JobState
from mirage.domain.snapshot import JobColumns, PartitionState
from mirage.provisioner.handover import NEVER_SATISFIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PARTITION = "cpu"
REQUEUE_DELAY = 120
"""Seconds before a requeued job may start again, as Slurm has it."""
WARNED_EARLY = 60
"""Seconds by which ``--signal`` may come before its time."""


class Program(Protocol):
    """A program that runs in the jobs."""

    def starts(self, job: Job, request: JobRequest) -> None:
        """The job runs, for the first time or again."""

    def warned(self, job: Job) -> None:
        """The signal that was asked for has come."""

    def ends(self, job: Job) -> None:
        """The job runs no longer: it has ended, or it is in the queue again."""


@dataclass
class Slurmctld:
    """Nodes are allocated whole, to the job that has waited longest and fits."""

    nodes: tuple[str, ...]
    now: int
    fate: Callable[[JobRequest], SimulatedExecution]
    """A submitted job's behaviour after its start."""
    epilog: int = 0
    """Seconds for which an ended job is COMPLETING and keeps its nodes."""
    lag: int = 0
    """Seconds by which accounting is behind."""
    down: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    """Nodes that finish what they run and start nothing."""
    held_by_admin: set[int] = field(default_factory=set)
    submit_limits: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By user: the number of jobs at the same time, and the limit's name."""
    programs: list[Program] = field(default_factory=list)
    _jobs: dict[JobId, Job] = field(default_factory=dict)
    _forgotten: set[JobId] = field(default_factory=set)
    _requests: dict[JobId, JobRequest] = field(default_factory=dict)
    _fates: dict[JobId, SimulatedExecution] = field(default_factory=dict)
    _not_before: dict[JobId, int] = field(default_factory=dict)
    _warned: set[JobId] = field(default_factory=set)
    _versions: dict[JobId, list[tuple[int, Job]]] = field(default_factory=dict)
    _agenda: list[tuple[int, int, Callable[[], object]]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)

    # What its commands ask: the same words as mirage.simulator.simulation.Simulation

    partition_names = (PARTITION,)

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(sorted({job.user for job in self._jobs.values()}))

    def jobs(self) -> list[Job]:
        """Those that the controller knows of."""
        return [job for job in self._jobs.values() if job.job_id not in self._forgotten]

    def job(self, job_id: JobId) -> Job:
        if job_id not in self._jobs or job_id in self._forgotten:
            raise UnknownJob(str(job_id))
        return self._jobs[job_id]

    def columns(self) -> tuple[JobColumns, JobColumns]:
        users = {user: code for code, user in enumerate(self.users)}
        return tuple(
            self._columns([job for job in self.jobs() if job.state is state], users)
            for state in (JobState.PENDING, JobState.RUNNING)
        )  # type: ignore[return-value]

    def partitions(self) -> tuple[PartitionState, ...]:
        taken = {node for _, nodes in self._holding() for node in nodes}
        unusable = self.down | self.drained
        idle = [node for node in self.nodes if node not in taken and node not in unusable]
        down = [node for node in unusable if node not in taken]
        return (PartitionState(PARTITION, len(self.nodes), len(idle), len(taken), len(down)),)

    def planned_starts(self) -> dict[JobId, int]:
        return {}

    def estimate_start(self, request: JobRequest) -> int:
        ends = sorted(job.end for job in self.jobs() if job.state is JobState.RUNNING)
        return ends[0] if ends else self.now

    def submit(self, request: JobRequest, *_: object) -> JobId:
        self._check(request)
        job_id = JobId(1_000 + len(self._jobs))
        self._requests[job_id], self._fates[job_id] = request, self.fate(request)
        shape = (request.name, request.user, PARTITION, request.nodes, request.limit, JobState.PENDING, self.now)
        extras = {"held": request.held, "nice": request.nice, "node_list": request.node_list}
        self._put(Job(job_id, *shape, reason="Priority", tag=request.tag, **extras))
        self._start_waiting()
        return job_id

    def cancel(self, job_id: JobId) -> None:
        self._end(self._jobs[job_id], JobState.CANCELLED, 0)

    def hold(self, job_id: JobId) -> None:
        self._change(job_id, held=True)

    def release(self, job_id: JobId) -> None:
        self.held_by_admin.discard(job_id)
        self._change(job_id, held=False)

    def set_nice(self, job_id: JobId, nice: int) -> None:
        self._change(job_id, nice=nice)

    def sharing(self, job_id: JobId) -> str:
        """The output of ``scontrol show job`` on its nodes, which it has alone, and on its requeueing."""
        return f"JobId={job_id} Requeue={int(self._requests[job_id].requeue is not False)} OverSubscribe=NO\n"

    def set_node_list(self, job_id: JobId, nodes: str) -> None:
        self._change(job_id, node_list=nodes)

    # What only the chaos does

    def at(self, time: int, act: Callable[[], object]) -> None:
        """Something that happens by itself at ``time``."""
        heapq.heappush(self._agenda, (time, next(self._count), act))

    def run_until(self, time: int) -> None:
        """Let everything happen that is due until then, in order."""
        while (instant := self._next()) <= time:
            self.now = max(self.now, instant)
            self._step()
        self.now = max(self.now, time)

    def live(self) -> list[Job]:
        return [job for job in self.jobs() if not job.state.finished]

    def completing(self, job: Job) -> bool:
        """Whether the nodes of an ended job are being cleaned up."""
        return job.state.finished and job.start != ABSENT and self.now < job.end + self.epilog

    def everything(self) -> list[Job]:
        """Every job there ever was, also those that a controller forgot; only for who judges afterwards."""
        return list(self._jobs.values())

    def last(self, job_id: JobId) -> Job:
        """The job as it is or was at last."""
        return self._jobs[job_id]

    def versions(self, job_id: JobId) -> list[Job]:
        """Every state in which this job has been."""
        return [job for _, job in self._versions[job_id]]

    def runs(self, job_id: JobId) -> list[tuple[int, int]]:
        """From when to when it ran, each time that it did, the cleaning up of its nodes included."""
        found: list[tuple[int, int]] = []
        for at, job in self._versions[job_id]:
            if job.state is JobState.RUNNING and (not found or found[-1][1] != NEVER):
                found.append((job.start, NEVER))
            elif job.state is not JobState.RUNNING and found and found[-1][1] == NEVER:
                found[-1] = (found[-1][0], at + (self.epilog if job.state.finished else 0))
        return found

    def lost(self, job_id: JobId) -> bool:
        return job_id in self._forgotten

    def accounted(self) -> list[Job]:
        """The jobs as accounting knows them by now."""
        told = (self._told(job_id) for job_id in self._jobs)
        return [job for job in told if job is not None]

    def requeue(self, job_id: JobId) -> None:
        """A running job goes back to the queue and will start from its beginning; not where it has Requeue=0."""
        if self._requests[job_id].requeue is False:
            return
        job = self._jobs[job_id]
        self._not_before[job_id] = self.now + REQUEUE_DELAY
        wanted = self._requests[job_id].node_list
        waits = {"submit": self.now, "start": ABSENT, "end": ABSENT, "node_list": wanted, "reason": "BeginTime"}
        self._put(replace(job, state=JobState.PENDING, **waits))

    def preempt(self, job_id: JobId) -> None:
        self._end(self._jobs[job_id], JobState.PREEMPTED, 0)

    def node_down(self, node: str) -> None:
        """Its job goes back to the queue, or ends where its owner did not want that."""
        self.down.add(node)
        for job in self.live():
            if job.state is JobState.RUNNING and node in job.node_list.split(","):
                if self._requests[job.job_id].requeue is not False:
                    self.requeue(job.job_id)
                else:
                    self._end(job, JobState.NODE_FAIL, 0)

    def node_drain(self, node: str) -> None:
        self.drained.add(node)

    def node_resume(self, node: str) -> None:
        self.down.discard(node)
        self.drained.discard(node)
        self._start_waiting()

    def forget(self, job_id: JobId) -> None:
        """The controller was restored from a state older than this job."""
        self._forgotten.add(job_id)

    def set_limit(self, job_id: JobId, seconds: int) -> None:
        """``scontrol update TimeLimit=``."""
        job = self._jobs[job_id]
        end = job.start + seconds if job.state is JobState.RUNNING else job.end
        self._put(replace(job, limit=seconds, end=end))

    def request(self, job_id: JobId) -> JobRequest:
        """The request as it was submitted."""
        return self._requests[job_id]

    def obey(self, job_id: JobId, after: int) -> None:
        """A job that was signalled ends well some seconds later."""
        job = self._jobs[job_id]
        if self.now + after < self._end_of(job):
            self._fates[job_id] = SimulatedExecution(self.now + after - job.start, JobState.COMPLETED, 0)

    def does(self, job_id: JobId, runtime: int) -> None:
        """A running job ends well after ``runtime`` seconds, unless it is to fail before that."""
        fate = self._fates[job_id]
        if fate.outcome in (JobState.TIMEOUT, JobState.COMPLETED) or fate.runtime >= runtime:
            self._fates[job_id] = SimulatedExecution(runtime, JobState.COMPLETED, 0)

    def warned(self, job_id: JobId) -> bool:
        """Whether the signal that was asked for has come to the job's last run."""
        return job_id in self._warned

    def comment(self, job_id: JobId, text: str) -> None:
        self._put(replace(self._jobs[job_id], tag=text))

    # Internal

    def _put(self, job: Job) -> None:
        before = self._jobs.get(job.job_id)
        ran = before is not None and before.state is JobState.RUNNING
        self._jobs[job.job_id] = job
        self._versions.setdefault(job.job_id, []).append((self.now, job))
        if ran and job.state is not JobState.RUNNING:
            for program in self.programs:
                program.ends(job)
        if job.state is JobState.RUNNING and not ran:
            self._warned.discard(job.job_id)
            for program in self.programs:
                program.starts(job, self._requests[job.job_id])

    def _check(self, request: JobRequest) -> None:
        if request.partition not in ("", PARTITION):
            raise SubmissionRejected("PartitionInvalid")
        most, reason = self.submit_limits.get(request.user, (NEVER, ""))
        if sum(job.user == request.user for job in self.live()) >= most:
            raise SubmissionRejected(reason)

    def _told(self, job_id: JobId) -> Job | None:
        known = [job for when, job in self._versions[job_id] if when + self.lag <= self.now]
        return known[-1] if known else None

    def _change(self, job_id: JobId, **what: object) -> None:
        self._put(replace(self._jobs[job_id], **what))  # type: ignore[arg-type]
        self._start_waiting()

    def _end(self, job: Job, state: JobState, code: int) -> None:
        self._put(replace(job, state=state, end=self.now, exit_code=code, held=False, reason="None"))
        self._start_waiting()

    def _next(self) -> int:
        due = [self._end_of(job) for job in self.live() if job.state is JobState.RUNNING]
        due += [self._warning(job) for job in self.live() if job.state is JobState.RUNNING]
        due += [when for when, _, _ in self._agenda[:1]]
        due += [when for when in self._not_before.values() if when > self.now]
        freed = (job.end + self.epilog for job in self._jobs.values() if self.completing(job))
        return min((*due, *freed), default=NEVER)

    def _step(self) -> None:
        for job in self.live():
            if job.state is JobState.RUNNING and self._end_of(job) <= self.now:
                run = self._fates[job.job_id]
                in_time = run.outcome is not JobState.TIMEOUT and job.start + run.runtime < job.end
                self._end(job, *((run.outcome, run.exit_code) if in_time else (JobState.TIMEOUT, 0)))
        for job in self.live():
            if job.state is JobState.RUNNING and self._warning(job) <= self.now:
                self._warned.add(job.job_id)
                for program in self.programs:
                    program.warned(job)
        while self._agenda and self._agenda[0][0] <= self.now:
            heapq.heappop(self._agenda)[2]()
        self._start_waiting()

    def _end_of(self, job: Job) -> int:
        """Whichever comes first: what it does, or its limit as it is now."""
        run = self._fates[job.job_id]
        return job.end if run.outcome is JobState.TIMEOUT else min(job.end, job.start + run.runtime)

    def _warning(self, job: Job) -> int:
        """The time of the requested signal; each job's is early by this amount."""
        warn = self._requests[job.job_id].warn
        if warn is None or job.job_id in self._warned:
            return NEVER
        return job.end - warn.lead - 17 * job.job_id % WARNED_EARLY

    def _holding(self) -> Iterable[tuple[Job, list[str]]]:
        for job in self.jobs():
            if job.state is JobState.RUNNING or self.completing(job):
                yield job, job.node_list.split(",")

    def _start_waiting(self) -> None:
        taken = {node for _, nodes in self._holding() for node in nodes}
        unusable = self.down | self.drained
        free = [node for node in self.nodes if node not in taken and node not in unusable]
        waiting = [job for job in self.jobs() if job.state is JobState.PENDING and not job.held]
        for job in sorted(waiting, key=lambda job: (job.nice, job.submit, job.job_id)):
            if self._not_before.get(job.job_id, 0) > self.now or self._depends(job):
                continue
            must = [node for node in job.node_list.split(",") if node]
            chosen = (must + [node for node in free if node not in must])[: job.nodes]
            if len(chosen) == job.nodes and set(chosen) <= set(free):
                free = [node for node in free if node not in chosen]
                self._put(self._running(job, chosen))

    def _depends(self, job: Job) -> bool:
        """Whether a job that it comes after is not over, its nodes cleaned up, or has ended as it should not."""
        if job.reason == NEVER_SATISFIED:
            return True
        after = ((each.kind, self._jobs.get(each.job_id)) for each in self._requests[job.job_id].dependencies)
        known = [(kind, it) for kind, it in after if it is not None and it.job_id not in self._forgotten]
        if any(not it.state.finished or self.completing(it) for _, it in known):
            return True
        if failed := (DependencyKind.AFTERNOTOK, JobState.COMPLETED) in [(kind, it.state) for kind, it in known]:
            self._put(replace(job, reason=NEVER_SATISFIED))
        return failed

    def _running(self, job: Job, nodes: list[str]) -> Job:
        times = {"start": self.now, "end": self.now + job.limit}
        return replace(job, state=JobState.RUNNING, node_list=",".join(nodes), reason="None", **times)

    def _columns(self, jobs: list[Job], users: dict[str, int]) -> JobColumns:
        def column(values: Iterable[int]) -> np.ndarray:
            return np.fromiter(values, dtype=np.int64, count=len(jobs))

        none = column(0 for _ in jobs)
        return JobColumns(
            job_id=column(job.job_id for job in jobs),
            user=column(users[job.user] for job in jobs),
            partition=none,
            qos=none,
            nodes=column(job.nodes for job in jobs),
            limit=column(job.limit for job in jobs),
            submit=column(job.submit for job in jobs),
            eligible=column(job.submit for job in jobs),
            start=column(job.start for job in jobs),
            priority=column(max(1, 1_000_000 - job.nice) for job in jobs),
            series=none,
        )
