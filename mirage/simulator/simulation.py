"""The simulated slurmctld as an object: jobs in, time on, jobs out. The work is done by the compiled kernel."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, UNLIMITED, Dependency, DependencyKind, Job, JobId, JobRequest, JobState
from mirage.domain.jobtable import job_table
from mirage.simulator import controller_state, views
from mirage.simulator.accounts import Accounts
from mirage.simulator.arrivals import encode_trace, no_arrivals, nodes_of
from mirage.simulator.controller_state import State
from mirage.simulator.kernel import engine, operations, priorities
from mirage.simulator.kernel.layout import NEED_SPACE, NEVER
from mirage.simulator.model import ClusterTables
from mirage.simulator.registry import Registry, nodes_listed
from mirage.simulator.views import standing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirage.domain.decision import Standing
    from mirage.domain.jobtable import JobLabels, JobTable
    from mirage.domain.snapshot import JobColumns, PartitionState
    from mirage.simulator.cluster import ClusterConfig, Reservation
    from mirage.simulator.kernel.layout import Candidate, ControllerState

Int64 = NDArray[np.int64]


def condition_rows(world: ControllerState, dependencies: Sequence[Dependency]) -> Int64:
    """Shape (dependencies, 5): what ``operations.submit`` wants; singletons are not among them."""
    rows = [_condition(world, dependency) for dependency in dependencies]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 5)


def _condition(world: ControllerState, dependency: Dependency) -> tuple[int, int, int, int, int]:
    kind, delay = dependency.kind, dependency.delay
    slot = int(operations.find(world, dependency.job_id))
    if slot >= 0:
        return int(kind), delay, slot, 0, 0
    own = world.own[: int(world.sim["own"][0])]
    found = np.flatnonzero(own["id"] == dependency.job_id)
    if not len(found):
        return int(kind), delay, -1, 1, 0  # purged from the queue: Slurm takes the condition as met
    row = own[found[0]]
    good = row["status"] == JobState.COMPLETED and row["exit_code"] == 0
    met = {DependencyKind.AFTEROK: good, DependencyKind.AFTERNOTOK: not good}.get(kind, True)
    began = row["start"] if row["start"] != NEVER else row["end"]
    return int(kind), delay, -1, int(met), int(began) + delay if kind == DependencyKind.AFTER else 0


Table = NDArray[np.void]

LOOK_AHEAD = 30 * 86_400
"""Maximum delay of a counterfactual job's start after its submission (s)."""

NODE_STATES = {"resume": 0, "drain": 1, "down": 2}


class Simulation:
    """A cluster, its queue and its clock.

    Jobs arrive from ``jobs`` by themselves and from ``submit``. Nothing happens but in ``run_until`` and
    ``run``; two simulations with the same calls in the same order are equal in every event.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        jobs: JobTable | None = None,
        *,
        start: int | None = None,
        log: bool = False,
    ) -> None:
        """An idle cluster; ``start`` (default: the first arrival): run the trace up to there."""
        model = ClusterTables(cluster)
        accounts = Accounts.of(cluster, model.resources)
        arrivals = no_arrivals(model) if jobs is None else encode_trace(model, accounts, jobs)
        self.rejected = arrivals.rejected
        """Trace jobs rejected before submission, by Slurm's reason."""
        self.notes = arrivals.notes
        self._requests: list[JobRequest] = []
        self._trace = jobs if jobs is not None else job_table(0)
        first = int(arrivals.jobs["submit"][0]) if len(arrivals.jobs) else start or 0
        begin = first if start is None else min(start, first)
        record = controller_state.new_record(len(self._trace), log)
        self._state = State(model, Registry.of_trace(accounts, jobs), arrivals, begin, record)
        if start is not None:
            self.run_until(start)

    def copy(self, *, results: bool = False) -> Simulation:
        """An independent simulation in the same state; without ``results`` the trace's are forgotten."""
        twin = copy(self)
        twin._state, twin._requests = self._state.copy(results=results), list(self._requests)
        return twin

    # Time

    @property
    def now(self) -> int:
        """The simulated clock, in seconds."""
        return self._state.now

    def run_until(self, time: int) -> None:
        """Handle everything due at or before ``time``; the clock then shows ``time``."""
        state = self._state
        while engine.advance(state.fixed, state.world, state.scratch, state.record, time) == NEED_SPACE:
            state.grow()

    def run(self) -> None:
        """Run until nothing is due any more; the clock stays at the last event."""
        state = self._state
        while engine.last_event(state.fixed, state.world, state.scratch, state.record) == NEED_SPACE:
            state.grow()

    # Jobs

    def submit(
        self,
        request: JobRequest,
        runtime: int = UNLIMITED,
        outcome: JobState = JobState.COMPLETED,
        exit_code: int = 0,
    ) -> JobId:
        """Submit a job that would run ``runtime`` seconds and end as ``outcome``; its limit may end it sooner.

        Raises ``SubmissionRejected`` with Slurm's reason.
        """
        candidate = self._state.registry.encode(self._state.model, request)
        row = candidate.job
        row["runtime"], row["outcome"], row["exit_code"] = runtime, int(outcome), exit_code
        return self._enter(request, candidate)

    def submit_array(
        self, request: JobRequest, runtimes: Sequence[int], most_at_once: int = 0
    ) -> tuple[JobId, ...]:
        """Submit an array job, one task per runtime; ``most_at_once`` is the ``%`` throttle (0: none)."""
        registry, ids = self._state.registry, []
        array = registry.new_array()
        for runtime in runtimes:
            candidate = registry.encode(self._state.model, request, array, most_at_once)
            candidate.job["runtime"] = runtime
            ids.append(self._enter(request, candidate))
        return tuple(ids)

    def _enter(self, request: JobRequest, candidate: Candidate) -> JobId:
        wanted = [d for d in request.dependencies if d.kind != DependencyKind.SINGLETON]
        state = self._state
        state.make_room_for_submission(len(wanted))
        awaited = condition_rows(state.world, wanted)
        job_id = operations.submit(state.fixed, state.world, state.scratch, state.record, candidate, awaited)
        if job_id < 0:
            raise SubmissionRejected(
                "AssocMaxSubmitJobLimit", f"user {request.user} has too many jobs in the queue"
            )
        partition = self.cluster.partitions[int(candidate.job["partition"][0])].name
        if request.batch is not None or not request.partition:  # scripts are large, and no simulated job runs one
            request = replace(request, partition=request.partition or partition, batch=None)
        self._requests.append(request)
        return JobId(int(job_id))

    def _slot(self, job_id: JobId) -> int:
        """The slot of a pending or running job; -1 when it has ended. Raises ``UnknownJob``."""
        slot = int(operations.find(self._state.world, job_id))
        if slot < 0 and not (self._state.own["id"] == job_id).any():
            raise UnknownJob(f"job {job_id}: not in the queue")
        return slot

    def cancel(self, job_id: JobId) -> None:
        """Cancel a pending or running job; nothing happens if it has ended. Raises ``UnknownJob``."""
        slot, state = self._slot(job_id), self._state
        if slot >= 0:
            operations.cancel(state.fixed, state.world, state.scratch, state.record, slot)

    def hold(self, job_id: JobId) -> None:
        """Hold a pending job. Raises ``UnknownJob``; nothing happens if it is not pending."""
        self._if_pending(job_id, operations.set_hold, 1)

    def release(self, job_id: JobId) -> None:
        """Release a held job. Raises ``UnknownJob``; nothing happens if it is not pending."""
        self._if_pending(job_id, operations.set_hold, 0)

    def set_nice(self, job_id: JobId, nice: int) -> None:
        """Change a pending job's nice value. Raises ``UnknownJob``."""
        self._if_pending(job_id, operations.set_nice, nice)

    def set_begin(self, job_id: JobId, begin: int) -> None:
        """Change when a pending job may begin at the earliest. Raises ``UnknownJob``."""
        self._state.make_room_for_events()
        self._if_pending(job_id, operations.set_begin, begin)

    def set_node_list(self, job_id: JobId, nodes: str) -> None:
        """Change the host list of nodes that a pending job must have; empty: any will do.

        Raises ``UnknownJob``, also for a job of the trace, and ``SubmissionRejected`` as ``submit`` does.
        """
        own = np.flatnonzero(self._state.own["id"] == job_id)
        if not len(own):
            raise UnknownJob(f"job {job_id}: not submitted here")
        changed = replace(self._requests[own[0]], node_list=nodes)
        must = nodes_listed(self._state.model, changed)
        if self._if_pending(job_id, operations.set_node_list, must):
            self._requests[own[0]] = changed

    def _if_pending(self, job_id: JobId, change: Callable[..., object], value: object) -> bool:
        """Change a job if it is pending; whether it was. Raises ``UnknownJob``."""
        slot, state = self._slot(job_id), self._state
        pending = bool(slot >= 0 and state.world.jobs["status"][slot] == JobState.PENDING)
        if pending:
            change(state.fixed, state.world, state.scratch, slot, value)
        return pending

    # Nodes

    def set_nodes(self, names: Iterable[str], state: str) -> None:
        """Put nodes ``down`` (what runs there is requeued or fails), to ``drain``, or ``resume`` them."""
        inner = self._state
        words = inner.model.node_words(names)
        inner.make_room_for_events()
        engine.set_node_states(inner.fixed, inner.world, inner.scratch, inner.record, words, NODE_STATES[state])

    def reserve(self, reservation: Reservation) -> None:
        """Make an advance reservation; what runs there already runs on."""
        self._state.reconfigure(replace(self.cluster, reservations=(*self.cluster.reservations, reservation)))

    # Answers

    def job(self, job_id: JobId) -> Job:
        """A job submitted with ``submit``, also after its end. Raises ``UnknownJob`` for any other."""
        return views.own_job(
            self._state.model, self._state.world, self._requests, self._state.registry.accounts, job_id
        )

    def jobs(self) -> list[Job]:
        """Every job submitted with ``submit``, in that order."""
        return [self.job(JobId(int(i))) for i in self._state.own["id"]]

    def columns(self) -> tuple[JobColumns, JobColumns]:
        """(pending, running) jobs as columns, pending in order of priority; cheap."""
        priorities.refresh(self._state.fixed, self._state.world, self._state.scratch)
        return (
            views.pending_columns(self._state.world, self._state.registry),
            views.running_columns(self._state.world, self._state.registry),
        )

    @property
    def whole_nodes(self) -> bool:
        """Whether every job has its nodes to itself."""
        return self._state.model.whole_nodes

    def labels(self) -> JobLabels:
        """Names and accounts of the jobs of ``columns``; takes longer than those."""
        return views.job_labels(self._state.model, self._state.world, self._state.registry)

    def partitions(self) -> tuple[PartitionState, ...]:
        """Nodes of each partition by state."""
        return views.partition_states(self._state.model, self._state.world)

    @property
    def cluster(self) -> ClusterConfig:
        """The configuration of the simulated cluster."""
        return self._state.model.cluster

    @property
    def users(self) -> tuple[str, ...]:
        """User names by the numbers in ``columns``."""
        return tuple(self._state.registry.users)

    @property
    def partition_names(self) -> tuple[str, ...]:
        """Partition names by the numbers in ``columns``."""
        return tuple(p.name for p in self._state.model.cluster.partitions)

    @property
    def default_partition(self) -> str:
        """The partition of jobs that name none; empty: the cluster has no default."""
        partitions = self._state.model.cluster.partitions
        only = partitions[0].name if len(partitions) == 1 else ""
        return next((p.name for p in partitions if p.default), only)

    @property
    def qos_names(self) -> tuple[str, ...]:
        """QOS names by the numbers in ``columns``."""
        return tuple(q.name for q in self._state.model.cluster.qos)

    def allocation(self, job_id: JobId) -> tuple[str, ...]:
        """Names of the nodes that a running job holds; empty when it does not run. Raises ``UnknownJob``."""
        return views.allocation(self._state.model, self._state.world, self._slot(job_id))

    def waits(self, count: int, since: int = 0) -> Table:
        """The last ``count`` jobs started since ``since``, oldest first: start, wait, nodes, limit, partition."""
        return views.recent_waits(self._state.world, count, since)

    def events(self) -> Table:
        """The event log: time, kind, id, state."""
        return self._state.record.log[: int(self._state.world.sim["log"][0])]

    def known_jobs(self, since: int) -> JobTable:
        """The trace's jobs submitted since then, with the starts and ends that they have had here until now.

        Nothing in copies that have forgotten the results.
        """
        return views.known_jobs(self._trace, self._state.record.results, since, self.now)

    def standing(self, request: JobRequest) -> Standing:
        """Fair share, limits and reservations that the controller grants the request's user for such a job."""
        return standing_of(self._state.model, self._state.registry.accounts, self._state.world, request, self.now)

    def schedule(self) -> Table:
        """By trace row: start and end (``NEVER``: not yet), state; empty in copies that have forgotten them."""
        return self._state.record.results

    def nodes_of(self, jobs: JobTable) -> Int64:
        """Nodes of each job of a trace as they are scheduled here; some traces have CPUs alone."""
        return nodes_of(self._state.model, jobs)

    def check(self) -> None:
        """Raise ``AssertionError`` if the tables contradict each other."""
        views.check(self._state.model, self._state.fixed, self._state.world)

    # What if

    def estimate_start(self, request: JobRequest) -> int:
        """When Slurm's plan would start the job if submitted now; ``ABSENT`` if not within its window.

        Raises ``SubmissionRejected`` for a job that the cluster would reject.
        """
        state = self._state
        candidate = state.registry.encode(state.model, request)
        state.make_room_for_candidate()
        work = state.work_area()
        engine.copy_world(state.world, work)
        start = operations.planned_start(state.fixed, work, state.scratch, controller_state.no_record(), candidate)
        return ABSENT if start == NEVER else int(start)

    def planned_starts(self) -> dict[JobId, int]:
        """Slurm's planned start of every pending job that has one (``squeue --start``)."""
        state = self._state
        work = state.work_area()
        engine.copy_world(state.world, work)
        operations.plan(state.fixed, work, state.scratch, controller_state.no_record())
        return views.planned(state.world, work)

    def start_times(
        self,
        request: JobRequest,
        runtime: int,
        submit_times: Sequence[int] | Int64,
        horizon: int = LOOK_AHEAD,
    ) -> Int64:
        """When the job would start if submitted at each of ``submit_times`` (ascending, not before now).

        Each is a separate run from here with the same arrivals; ``NEVER`` where it would not start within
        ``horizon`` seconds or its limits reject it. This simulation does not change.
        """
        state = self._state.copy(results=False)
        candidate = state.registry.encode(state.model, request)
        candidate.job["runtime"] = runtime
        state.make_room_for_candidate()
        times = np.asarray(submit_times, dtype=np.int64)
        starts = np.full(len(times), NEVER, dtype=np.int64)
        record, done = controller_state.no_record(), 0
        while done < len(times):
            done += engine.starts_if_submitted(
                state.fixed,
                state.world,
                state.work_area(),
                state.scratch,
                record,
                candidate,
                times[done:],
                horizon,
                starts[done:],
            )
            if done < len(times):
                state.make_room(2 * len(state.world.jobs))
        return starts
