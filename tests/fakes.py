"""A scripted cluster for tests, which set waits, run times and failures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.chain import NOTHING_EXPECTED, Chain, ChainId, DoneCondition
from mirage.domain.decision import RecentWaits
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.failurepolicy import FailurePolicies
from mirage.domain.files import FileState, Presence, WatchedFile
from mirage.domain.job import (
    ABSENT,
    BatchScript,
    Dependency,
    DependencyKind,
    Job,
    JobChange,
    JobId,
    JobRequest,
    JobState,
    SignalReach,
)
from mirage.domain.link import NO_IDENTITIES, LinkIdentity, is_link
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MIN = 60
HOUR = 3_600
BY_EXIT_CODE = DoneCondition()
BY_DEFAULT = FailurePolicies()


def chain(
    limit: int = 48 * HOUR,
    done: DoneCondition = BY_EXIT_CODE,
    failures: FailurePolicies = BY_DEFAULT,
    name: str = "svc",
    **more: Any,
) -> Chain:
    """A one-node service of alice's in her home."""
    request = JobRequest(name, "", limit, batch=BatchScript("#!/bin/sh\nexec serve\n", directory="/home/alice"))
    return Chain(ChainId(name), name, "alice", request, done, failures, **more)


@dataclass
class Fate:
    """How a job of the fake cluster goes: how long it waits and runs, and how it ends."""

    wait: int = 0
    runtime: int | None = None
    """``None``: to its limit, a TIMEOUT."""
    state: JobState = JobState.COMPLETED
    exit_code: int = 0
    obeys: int | None = None
    """Exits with 0 this number of seconds after a signal; ``None``: ignores it."""


@dataclass
class FakeCluster:
    """Every port that faces Slurm, on a clock that the test moves. Nothing with a nice ever starts: it is full."""

    fates: Callable[[JobRequest], Fate] = lambda request: Fate()
    time: int = 0
    down: bool = False
    refuse: str = ""
    partitions: tuple[PartitionState, ...] = ()
    lose_answer: bool = False
    """The next submission goes through, but the answer does not come back."""
    lose_question: bool = False
    """The next submission never reaches the controller."""
    waits: list[int] = field(default_factory=list)
    plan: int = ABSENT
    jobs: dict[int, Job] = field(default_factory=dict)
    submissions: list[JobRequest] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=lambda: {"/home/alice"})
    unknown_files: dict[str, FileState] = field(default_factory=dict)
    watched: set[WatchedFile] = field(default_factory=set)
    changes: list[tuple[int, JobChange]] = field(default_factory=list)
    signals: list[tuple[int, str]] = field(default_factory=list)
    forget_after: int | None = None
    """Ended jobs leave the snapshot after this number of seconds."""
    unaccounted: set[str] = field(default_factory=set)
    """Links that have left the queue while accounting cannot be asked."""
    comments_replaced: bool = False
    """Whether comments are replaced, as a job_submit plugin may do."""
    idle: bool = False
    """There are free nodes: a job with a nice value starts as well."""
    sharing: str = ""
    """Why a second job fits next to one on its node."""
    _fates: dict[int, Fate] = field(default_factory=dict)
    _released: dict[int, int] = field(default_factory=dict)
    _after: dict[int, tuple[Dependency, ...]] = field(default_factory=dict)

    def now(self) -> int:
        return self.time

    def advance(self, until: int) -> None:
        assert until >= self.time
        self.time = until
        for job_id in list(self.jobs):  # in order of submission: who ends frees nodes for those behind
            self.jobs[job_id] = self._brought_up(self.jobs[job_id])

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        self._answer()
        links: dict[str, Job] = {}
        rivals: list[Job] = []
        tags = {
            job_id: tag
            for tag, job_id in expected.items()
            if job_id in self.jobs and is_link(self.jobs[job_id], identities.get(tag) or LinkIdentity(tag))
        }
        for job in (replace(job, tag=tags.get(job.job_id, job.tag)) for job in self.jobs.values()):
            if job.tag and job.tag not in self.unaccounted and not self._forgotten(job):
                rivals += [job] if links.setdefault(job.tag, job) is not job else []
        return Snapshot(
            self.time,
            *(JobColumns.none(), JobColumns.none(), self.partitions, (), (), ()),
            links,
            tuple(rivals),
            frozenset(self.unaccounted & expected.keys()),
            unmarked=frozenset(
                tag for job_id, tag in tags.items() if self.comments_replaced and job_id in self.jobs
            ),
        )

    def submit(self, request: JobRequest) -> JobId:
        self._answer()
        if self.lose_question:
            self.lose_question = False
            raise ClusterUnavailable("connection refused")
        if self.refuse:
            raise SubmissionRejected(self.refuse)
        job_id = JobId(len(self.submissions) + 100)
        self.submissions.append(request)
        self._fates[job_id] = self.fates(request)
        self._after[job_id] = request.dependencies
        self.jobs[job_id] = Job(
            job_id,
            request.name,
            request.user,
            "p",
            request.nodes,
            request.limit,
            JobState.PENDING,
            self.time,
            tag="" if self.comments_replaced else request.tag,
            held=request.held,
            nice=request.nice,
            node_list=request.node_list,
        )
        self.advance(self.time)
        if self.lose_answer:
            self.lose_answer = False
            raise ClusterUnavailable("timed out")
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        job = self._owned(job_id, owner)
        if not job.state.finished:
            self.jobs[job_id] = replace(job, state=JobState.CANCELLED, end=self.time)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        job = self._owned(job_id, owner)
        if job.state is not JobState.PENDING:
            raise UnknownJob(str(job_id))
        self.changes.append((job_id, change))
        held = job.held if change.held is None else change.held
        nice = job.nice if change.nice is None else change.nice
        nodes = job.node_list if change.node_list is None else change.node_list
        if change.dependencies is not None:
            self._after[job_id] = change.dependencies
        changed = replace(job, held=held, nice=nice, node_list=nodes)
        if self._restrained(job) and not self._restrained(changed):
            self._released[job_id] = self.time
        elif job.node_list and not nodes:
            self._released[job_id] = self._freed(job)
        self.jobs[job_id] = changed

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        job = self._owned(job_id, owner)
        if job.state is not JobState.RUNNING:
            raise UnknownJob(str(job_id))
        self.signals.append((job_id, signal))
        fate = self._fates[job_id]
        if fate.obeys is not None:
            runtime = self.time + fate.obeys - job.start
            self._fates[job_id] = replace(fate, runtime=runtime, state=JobState.COMPLETED, exit_code=0)

    def _owned(self, job_id: JobId, owner: str) -> Job:
        self._answer()
        if job_id not in self.jobs:
            raise UnknownJob(str(job_id))
        if self.jobs[job_id].user != owner:
            raise NotPermitted(f"job {job_id} is not {owner}'s")
        return self.jobs[job_id]

    def estimate_start(self, request: JobRequest) -> int:
        self._answer()
        return self.plan

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        return self.sharing

    def recent_waits(self, count: int, partition: str, gres: str = "", qos: str = "") -> RecentWaits:
        del gres, qos
        wait = np.array(self.waits[-count:], dtype=np.int64)
        ones = np.ones_like(wait)
        return RecentWaits(np.arange(len(wait)), wait, ones, np.full_like(wait, 48 * HOUR), partition)

    def link_states(self) -> tuple[int, ...]:
        return tuple(job.state for job in self.jobs.values())

    def refresh(self, wanted: Collection[WatchedFile], anew: Collection[WatchedFile] = ()) -> None:
        self.watched = set(wanted)

    def state(self, file: WatchedFile) -> FileState:
        assert file in self.watched, "asked for a file that the cycle has not had checked"
        if file.path in self.directories:
            return FileState(Presence.UNKNOWN, f"{file.path}: not a regular file; only a regular file counts")
        present = FileState(Presence.PRESENT if file.path in self.files else Presence.ABSENT)
        return self.unknown_files.get(file.path, present)

    def check_files(self, paths: tuple[str, ...], owner: str) -> tuple[FileState, ...]:
        self.refresh([WatchedFile(owner, path) for path in paths])
        return tuple(self.state(WatchedFile(owner, path)) for path in paths)

    def live(self) -> list[Job]:
        return [job for job in self.jobs.values() if not job.state.finished]

    def requeue(self, job_id: int, wait: int = 0) -> None:
        """The job goes back to the queue and waits again."""
        job = self.jobs[job_id]
        self._fates[job_id] = replace(self._fates[job_id], wait=wait)
        self.jobs[job_id] = replace(job, state=JobState.PENDING, submit=self.time, start=ABSENT, end=ABSENT)

    def _answer(self) -> None:
        if self.down:
            raise ClusterUnavailable("no route to host")

    def _forgotten(self, job: Job) -> bool:
        return self.forget_after is not None and job.state.finished and job.end + self.forget_after <= self.time

    def _restrained(self, job: Job) -> bool:
        return bool(job.held or (job.nice and not self.idle) or self._holders(job) or self._awaited(job))

    def _holders(self, job: Job) -> list[Job]:
        """Running jobs on the nodes that a pending job must have."""
        return [
            other for other in self.live() if other.state is JobState.RUNNING and other.node_list == job.node_list
        ]

    def _awaited(self, job: Job) -> list[Job]:
        """Jobs that have to be over before a pending one may start, and those that were not to end as they did."""
        kinds = {each.job_id: each.kind for each in self._after.get(job.job_id, ())}
        waited_for = [other for other in self.jobs.values() if other.job_id in kinds]
        return [
            other
            for other in waited_for
            if not other.state.finished
            or (kinds[other.job_id] is DependencyKind.AFTERNOTOK and other.state is JobState.COMPLETED)
        ]

    def _freed(self, job: Job) -> int:
        """When the nodes that a pending job must have were left."""
        ends = [
            other.end for other in self.jobs.values() if other.node_list == job.node_list and other.state.finished
        ]
        return max(ends, default=0) if job.node_list else 0

    def _brought_up(self, job: Job) -> Job:
        fate = self._fates[job.job_id]
        start = max(job.submit + fate.wait, self._released.get(job.job_id, 0))
        if job.state is JobState.PENDING and not self._restrained(job) and start <= self.time:
            over = [
                self.jobs[each.job_id].end for each in self._after.get(job.job_id, ()) if each.job_id in self.jobs
            ]
            start = max(start, self._freed(job), *over)
            nodes = f"node-{job.job_id}"
            job = replace(job, state=JobState.RUNNING, start=start, end=start + job.limit, node_list=nodes)
        runtime = job.limit if fate.runtime is None else fate.runtime
        if job.state is JobState.RUNNING and job.start + runtime <= self.time:
            state = JobState.TIMEOUT if fate.runtime is None else fate.state
            job = replace(job, state=state, end=job.start + runtime, exit_code=fate.exit_code)
        return job
