"""The simulated slurmctld as an object: jobs in, time on, jobs out. The work is done by the compiled kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, UNLIMITED, DependencyKind, Job, JobId, JobRequest, JobState
from mirage.domain.jobtable import job_table
from mirage.simulator import tables, views
from mirage.simulator.accounts import Accounts
from mirage.simulator.arrivals import encode_trace, no_arrivals
from mirage.simulator.conditions import condition_rows
from mirage.simulator.kernel import engine, operations, queue
from mirage.simulator.kernel.layout import NEED_SPACE, NEVER, Fixed, Scratch, World
from mirage.simulator.model import Model
from mirage.simulator.nodelists import nodes_listed
from mirage.simulator.registry import Registry
from mirage.simulator.standing import standing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirage.domain.decision import Standing
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import JobColumns, PartitionState
    from mirage.simulator.cluster import ClusterConfig, Reservation
    from mirage.simulator.kernel.layout import Candidate

Int64 = NDArray[np.int64]
Table = NDArray[np.void]

LOOK_AHEAD = 30 * 86_400
"""How long after its submission a counterfactual job may start (s)."""

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
        self._model = Model(cluster)
        accounts = Accounts.of(cluster, self._model.resources)
        arrivals = no_arrivals(self._model) if jobs is None else encode_trace(self._model, accounts, jobs)
        self.rejected = arrivals.rejected
        """Trace jobs refused before submission, by Slurm's reason."""
        self.notes = arrivals.notes
        self._registry = Registry.of_trace(accounts, jobs)
        self._requests: list[JobRequest] = []
        self._trace = jobs if jobs is not None else job_table(0)
        self._fixed = self._new_fixed(arrivals.jobs, arrivals.needs)
        first = int(arrivals.jobs["submit"][0]) if len(arrivals.jobs) else start or 0
        begin = first if start is None else min(start, first)
        self._world = tables.new_world(self._model, accounts, self._fixed, begin)
        self._record = tables.new_record(0 if jobs is None else len(jobs), log)
        self._scratch = self._new_scratch()
        self._work: World | None = None
        if start is not None:
            self.run_until(start)

    def _new_fixed(self, jobs: Table, needs: Int64) -> Fixed:
        model = self._model
        return Fixed(
            config=self._new_config(),
            arrivals=jobs,
            arrival_needs=needs,
            capacity=model.capacity,
            partitions=model.partition_table(),
            reservations=model.reservation_table(model.cluster.reservations, model.first_reservation_mask),
            timeline=model.timeline(),
            masks=model.masks,
            feature_mask=np.arange(len(model.features), dtype=np.int64) + len(model.cluster.partitions),
        )

    def _new_config(self) -> Table:
        r = self._registry
        return self._model.config_table(len(r.users), r.arrays, r.users_in_tree)

    def _new_scratch(self, slots: int = 0) -> Scratch:
        registry, slots = self._registry, max(slots, len(self._world.jobs))
        return tables.new_scratch(self._model, self._world, registry.arrays, len(registry.users), slots)

    # Time

    @property
    def now(self) -> int:
        """The simulated clock (s)."""
        return int(self._world.sim["now"][0])

    def next_event_time(self) -> int:
        """When the next thing is due; ``NEVER`` if nothing is."""
        return int(engine.next_time(self._fixed, self._world))

    def run_until(self, time: int) -> None:
        """Handle everything due at or before ``time``; the clock then shows ``time``."""
        while engine.advance(self._fixed, self._world, self._scratch, self._record, time) == NEED_SPACE:
            self._grow()

    def run(self) -> None:
        """Run until nothing is due any more; the clock stays at the last event."""
        while engine.last_event(self._fixed, self._world, self._scratch, self._record) == NEED_SPACE:
            self._grow()

    def _grow(self) -> None:
        """Make room for at least what the next instant may bring."""
        coming = self._fixed.arrivals["submit"][int(self._world.sim["next_arrival"][0]) :]
        arriving = int(np.searchsorted(coming, self.now, side="right"))
        self._make_room(2 * len(self._world.jobs) + arriving)
        if len(self._record.log):
            lines = 2 * len(self._record.log) + 8 * len(self._world.jobs)
            self._record = self._record._replace(log=tables.grown(self._record.log, lines))

    def _make_room(self, slots: int) -> None:
        self._world = tables.with_room(self._world, slots)
        self._fit_scratch(len(self._world.jobs))

    def _fit_scratch(self, slots: int) -> None:
        if len(self._scratch.order) < slots:
            self._scratch = self._new_scratch(slots)

    def copy(self, *, results: bool = False) -> Simulation:
        """An independent simulation in the same state; without ``results`` the trace's are forgotten."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._world = tables.copied(self._world)
        twin._registry, twin._requests = self._registry.copy(), list(self._requests)
        kept = self._record.results.copy() if results else self._record.results[:0]
        twin._record = self._record._replace(results=kept, log=self._record.log.copy())
        twin._scratch, twin._work = self._new_scratch(), None
        return twin

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
        candidate = self._registry.encode(self._model, request)
        row = candidate.job
        row["runtime"], row["outcome"], row["exit_code"] = runtime, int(outcome), exit_code
        return self._enter(request, candidate)

    def submit_array(
        self, request: JobRequest, runtimes: Sequence[int], most_at_once: int = 0
    ) -> tuple[JobId, ...]:
        """Submit an array job, one task per runtime; ``most_at_once`` is the ``%`` throttle (0: none)."""
        array, ids = self._registry.new_array(), []
        for runtime in runtimes:
            candidate = self._registry.encode(self._model, request, array, most_at_once)
            candidate.job["runtime"] = runtime
            ids.append(self._enter(request, candidate))
        return tuple(ids)

    def _enter(self, request: JobRequest, candidate: Candidate) -> JobId:
        self._extend_tables()
        sim = self._world.sim[0]
        own, wanted = int(sim["own"]), [d for d in request.dependencies if d.kind != DependencyKind.SINGLETON]
        self._make_room(int(sim["slots"] + sim["agenda"] // 8) + 64)
        self._world = tables.with_own_room(self._world, own + 2)._replace(
            deps=tables.grown(self._world.deps, int(sim["deps"]) + len(wanted) + 2)
        )
        job_id = operations.submit(
            self._fixed,
            self._world,
            self._scratch,
            self._record,
            candidate,
            condition_rows(self._world, wanted),
        )
        if job_id < 0:
            raise SubmissionRejected(
                "AssocMaxSubmitJobLimit", f"user {request.user} has too many jobs in the queue"
            )
        partition = self._model.cluster.partitions[int(candidate.job["partition"][0])].name
        self._requests.append(request if request.partition else replace(request, partition=partition))
        return JobId(int(job_id))

    def _extend_tables(self) -> None:
        """Add rows for users, arrays and limits that appeared since the tables were made."""
        world, accounts = self._world, self._registry.accounts
        if len(accounts.groups) > len(world.groups):
            new = accounts.group_rows(len(world.groups))
            world = world._replace(groups=np.concatenate([world.groups, new]))
        if len(accounts.rows) > len(world.associations):
            tree = accounts.tree_rows(self.now)
            for name in ("usage", "rate", "at", "factor"):
                tree[name][: len(world.associations)] = world.associations[name]
            world = world._replace(associations=tree)
        self._world = world
        registry, config = self._registry, self._fixed.config
        if config["users"][0] < len(registry.users) or len(self._scratch.counts) <= (
            len(self._model.cluster.partitions) + len(registry.users) + registry.arrays
        ):
            self._fixed = self._fixed._replace(config=self._new_config())
            self._scratch = self._new_scratch(len(self._scratch.order))

    @property
    def _own(self) -> Table:
        return self._world.own[: int(self._world.sim["own"][0])]

    def _slot(self, job_id: JobId) -> int:
        """The slot of a pending or running job; -1 when it has ended. Raises ``UnknownJob``."""
        slot = int(operations.find(self._world, job_id))
        if slot < 0 and not (self._own["id"] == job_id).any():
            raise UnknownJob(f"job {job_id}: not in the queue")
        return slot

    def cancel(self, job_id: JobId) -> None:
        """Cancel a pending or running job; nothing happens if it has ended. Raises ``UnknownJob``."""
        slot = self._slot(job_id)
        if slot >= 0:
            operations.cancel(self._fixed, self._world, self._scratch, self._record, slot)

    def hold(self, job_id: JobId) -> None:
        """Hold a pending job. Raises ``UnknownJob``; nothing happens if it is not pending."""
        self._if_pending(
            job_id, lambda slot: operations.set_hold(self._fixed, self._world, self._scratch, slot, 1)
        )

    def release(self, job_id: JobId) -> None:
        """Release a held job. Raises ``UnknownJob``; nothing happens if it is not pending."""
        self._if_pending(
            job_id, lambda slot: operations.set_hold(self._fixed, self._world, self._scratch, slot, 0)
        )

    def set_nice(self, job_id: JobId, nice: int) -> None:
        """Change a pending job's nice value. Raises ``UnknownJob``."""
        self._if_pending(
            job_id, lambda slot: operations.set_nice(self._fixed, self._world, self._scratch, slot, nice)
        )

    def set_begin(self, job_id: JobId, begin: int) -> None:
        """Change when a pending job may begin at the earliest. Raises ``UnknownJob``."""
        self._make_room(int(self._world.sim["agenda"][0]) // 8 + 64)
        self._if_pending(
            job_id, lambda slot: operations.set_begin(self._fixed, self._world, self._scratch, slot, begin)
        )

    def set_node_list(self, job_id: JobId, nodes: str) -> None:
        """Change the host list of nodes that a pending job must have; empty: any will do.

        Raises ``UnknownJob``, also for a job of the trace, and ``SubmissionRejected`` as ``submit`` does.
        """
        own = np.flatnonzero(self._own["id"] == job_id)
        if not len(own):
            raise UnknownJob(f"job {job_id}: not submitted here")
        changed = replace(self._requests[own[0]], node_list=nodes)
        must = nodes_listed(self._model, changed)

        def change(slot: int) -> None:
            operations.set_node_list(self._fixed, self._world, self._scratch, slot, must)
            self._requests[own[0]] = changed

        self._if_pending(job_id, change)

    def _if_pending(self, job_id: JobId, change: Callable[[int], None]) -> None:
        slot = self._slot(job_id)
        if slot >= 0 and self._world.jobs["status"][slot] == JobState.PENDING:
            change(slot)

    # Nodes

    def set_nodes(self, names: Iterable[str], state: str) -> None:
        """Put nodes ``down`` (what runs there is requeued or fails), to ``drain``, or ``resume`` them."""
        words = self._model.node_words(names)
        self._make_room(int(self._world.sim["agenda"][0]) // 8 + 64)
        engine.set_node_states(self._fixed, self._world, self._scratch, self._record, words, NODE_STATES[state])

    def reserve(self, reservation: Reservation) -> None:
        """Make an advance reservation; what runs there already runs on."""
        cluster = self._model.cluster
        self._model = Model(replace(cluster, reservations=(*cluster.reservations, reservation)))
        fixed = self._new_fixed(self._fixed.arrivals, self._fixed.arrival_needs)
        self._fixed = fixed._replace(timeline=fixed.timeline[fixed.timeline["time"] > self.now])
        self._world.sim["next_timeline"] = 0

    # Answers

    def job(self, job_id: JobId) -> Job:
        """A job submitted with ``submit``, also after its end. Raises ``UnknownJob`` for any other."""
        return views.own_job(self._model, self._world, self._requests, self._registry.accounts, job_id)

    def jobs(self) -> list[Job]:
        """Every job submitted with ``submit``, in that order."""
        return [self.job(JobId(int(i))) for i in self._own["id"]]

    def columns(self) -> tuple[JobColumns, JobColumns]:
        """(pending, running) jobs as columns, pending in order of priority; cheap."""
        queue.refresh(self._fixed, self._world, self._scratch)
        return (
            views.pending_columns(self._world, self._registry),
            views.running_columns(self._world, self._registry),
        )

    def partitions(self) -> tuple[PartitionState, ...]:
        """Nodes of each partition by state."""
        return views.partition_states(self._model, self._world)

    @property
    def cluster(self) -> ClusterConfig:
        """What is simulated."""
        return self._model.cluster

    @property
    def users(self) -> tuple[str, ...]:
        """User names by the numbers in ``columns``."""
        return tuple(self._registry.users)

    @property
    def partition_names(self) -> tuple[str, ...]:
        """Partition names by the numbers in ``columns``."""
        return tuple(p.name for p in self._model.cluster.partitions)

    @property
    def qos_names(self) -> tuple[str, ...]:
        """QOS names by the numbers in ``columns``."""
        return tuple(q.name for q in self._model.cluster.qos)

    def allocation(self, job_id: JobId) -> tuple[str, ...]:
        """Names of the nodes that a running job holds; empty when it does not run. Raises ``UnknownJob``."""
        return views.allocation(self._model, self._world, self._slot(job_id))

    def waits(self, count: int, since: int = 0) -> Table:
        """The last ``count`` jobs started since ``since``, oldest first: start, wait, nodes, limit, partition."""
        return views.recent_waits(self._world, count, since)

    def events(self) -> Table:
        """The event log: time, kind, id, state."""
        return self._record.log[: int(self._world.sim["log"][0])]

    def known_jobs(self, since: int) -> JobTable:
        """The trace's jobs submitted since then, with the starts and ends that they have had here until now.

        Nothing in copies that have forgotten the results.
        """
        return views.known_jobs(self._trace, self._record.results, since, self.now)

    def standing(self, request: JobRequest) -> Standing:
        """What the controller grants the request's user for such a job."""
        return standing_of(self._model, self._registry.accounts, self._world, request, self.now)

    def schedule(self) -> Table:
        """By trace row: start and end (``NEVER``: not yet), state; empty in copies that have forgotten them."""
        return self._record.results

    def check(self) -> None:
        """Raise ``AssertionError`` if the tables contradict each other."""
        views.check(self._model, self._fixed, self._world)

    # What if

    def estimate_start(self, request: JobRequest) -> int:
        """When Slurm's plan would start the job if submitted now; ``ABSENT`` if not within its window.

        Raises ``SubmissionRejected`` for a job that the cluster would refuse.
        """
        candidate = self._registry.encode(self._model, request)
        self._prepare_candidate()
        work = self._work_area()
        engine.copy_world(self._world, work)
        start = operations.planned_start(self._fixed, work, self._scratch, tables.no_record(), candidate)
        return ABSENT if start == NEVER else int(start)

    def planned_starts(self) -> dict[JobId, int]:
        """Slurm's planned start of every pending job that has one (``squeue --start``)."""
        work = self._work_area()
        engine.copy_world(self._world, work)
        operations.plan(self._fixed, work, self._scratch, tables.no_record())
        return views.planned(self._world, work)

    def _prepare_candidate(self) -> None:
        self._extend_tables()
        self._make_room(int(self._world.sim["slots"][0]) + 64)
        self._world = tables.with_own_room(self._world, len(self._own) + 2)

    def start_times(
        self,
        request: JobRequest,
        runtime: int,
        submit_times: Sequence[int] | Int64,
        horizon: int = LOOK_AHEAD,
    ) -> Int64:
        """When the job would start if submitted at each of ``submit_times`` (ascending, not before now).

        Each is a run of its own from here with the same arrivals; ``NEVER`` where it would not start within
        ``horizon`` seconds or its limits refuse it. This simulation does not change.
        """
        base = self.copy()
        candidate = base._registry.encode(base._model, request)
        candidate.job["runtime"] = runtime
        base._prepare_candidate()
        times = np.asarray(submit_times, dtype=np.int64)
        starts = np.full(len(times), NEVER, dtype=np.int64)
        record, done = tables.no_record(), 0
        while done < len(times):
            done += engine.starts_if_submitted(
                base._fixed,
                base._world,
                base._work_area(),
                base._scratch,
                record,
                candidate,
                times[done:],
                horizon,
                starts[done:],
            )
            if done < len(times):
                base._make_room(2 * len(base._world.jobs))
        return starts

    def _work_area(self) -> World:
        """A world to run copies in, with room to grow and no history of waits; kept for the next time."""
        work, world = self._work, self._world
        sizes = zip(work or (), world, strict=False)
        if work is None or any(len(a) < len(b) for a, b in sizes if b is not world.waits):
            roomy = tables.with_room(tables.copied(world), len(world.jobs) + 512)
            self._fit_scratch(len(roomy.jobs))
            self._work = work = tables.with_own_room(roomy, 2 * len(world.own))._replace(waits=world.waits[:0])
        return work
