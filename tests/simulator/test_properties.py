"""Invariants of every simulation under any calls: a stateful machine over the facade."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from small_clusters import T0, ask, node_names

from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import Dependency, DependencyKind, JobId, JobRequest, JobState
from mirage.simulator.cluster import (
    Association,
    ClusterConfig,
    NodeGroup,
    Partition,
    PriorityWeights,
    Reservation,
    SchedulerParameters,
)
from mirage.simulator.simulation import Simulation
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from mirage.domain.job import Job

CPUS = 4
GRES = (("gpu:a100", 2), ("gpu:v100", 1))
USERS = ("ann", "bob", "cat")


@st.composite
def configurations(draw: st.DrawFn) -> ClusterConfig:
    """One to eight nodes: whole ones, or shared ones with CPUs and typed GRES; two overlapping partitions."""
    count = draw(st.integers(1, 8))
    names = node_names(count)
    exclusive = draw(st.booleans())
    first = draw(st.integers(1, count))
    parts = (
        Partition("main", names, exclusive=exclusive, default=True, max_time=5000),
        Partition("urgent", names[:first], exclusive=exclusive, priority_tier=draw(st.integers(1, 2))),
    )
    return ClusterConfig(
        name="drawn",
        nodes=(NodeGroup(names=names, cpus=CPUS, gres=GRES),),
        partitions=parts,
        default_association=Association(account="", max_jobs=draw(st.sampled_from([-1, 1, 2]))),
        scheduler=draw(
            st.builds(
                SchedulerParameters,
                backfill=st.booleans(),
                bf_interval=st.sampled_from([10, 30]),
                bf_max_job_test=st.sampled_from([3, 500]),
                batch_sched_delay=st.sampled_from([0, 3]),
                default_queue_depth=st.sampled_from([2, 100]),
                over_time_limit=st.sampled_from([0, 60]),
            )
        ),
        priority=draw(
            st.builds(
                PriorityWeights,
                age=st.sampled_from([0, 1000]),
                job_size=st.sampled_from([0, 500]),
                fair_share=st.sampled_from([0, 2000]),
            )
        ),
    )


@dataclass(slots=True)
class Known:
    """The test's submissions, and the state it saw last."""

    request: JobRequest
    submitted: int
    held: bool
    begin: int
    downed: bool = False
    """Whether a node has gone down under it or might have."""


requests = st.builds(
    ask,
    user=st.sampled_from(USERS),
    nodes=st.sampled_from([1, 1, 1, 2, 3, 8]),
    limit=st.sampled_from([60, 300, 900, 4000]),
    partition=st.sampled_from(["", "urgent"]),
    cpus_per_node=st.integers(0, CPUS),
    gres_per_node=st.sampled_from([(), (("gpu:a100", 1),), (("gpu:a100", 2),), (("gpu:v100", 1),), (("gpu", 2),)]),
    exclusive=st.booleans(),
    nice=st.integers(-50, 50),
    held=st.sampled_from([False] * 9 + [True]),
    requeue=st.booleans(),
)


class Cluster(RuleBasedStateMachine):
    """Reads every value of a simulation, and recomputes what must hold from separate records."""

    @initialize(config=configurations())
    def begin(self, config: ClusterConfig) -> None:
        self.config = config
        self.sim = Simulation(config, start=T0, log=True)
        self.known: dict[int, Known] = {}
        self.reserved: list[tuple[Reservation, set[int]]] = []
        """And the jobs that ran already when it was made."""
        self.unusable: set[str] = set()
        """Nodes that may take no new job."""
        self.running_on: dict[str, set[int]] = {}

    def now(self) -> int:
        return int(self.sim.now)

    def job(self, number: int) -> Job:
        return self.sim.job(JobId(number))

    # What may happen

    @rule(request=requests, runtime=st.integers(0, 5000), delay=st.sampled_from([0, 0, 0, 100]), data=st.data())
    def submit(self, request: JobRequest, runtime: int, delay: int, data: st.DataObject) -> None:
        begin = self.now() + delay if delay else 0
        asked = replace(
            request, begin=begin, dependencies=self.dependency(data), node_list=self.node_list(request, data)
        )
        outcome = data.draw(st.sampled_from([JobState.COMPLETED, JobState.FAILED]))
        try:
            number = int(self.sim.submit(asked, runtime, outcome))
        except SubmissionRejected:
            assert asked.nodes > len(self.nodes_of(asked.partition))
            return
        assert number not in self.known
        self.known[number] = Known(asked, self.now(), asked.held, begin)

    def node_list(self, request: JobRequest, data: st.DataObject) -> str:
        """None mostly, else some nodes of the job's partition, no more than it asks for."""
        if data.draw(st.integers(0, 3)):
            return ""
        names = st.sampled_from(self.nodes_of(request.partition))
        return ",".join(data.draw(st.lists(names, unique=True, max_size=request.nodes)))

    def dependency(self, data: st.DataObject) -> tuple[Dependency, ...]:
        kind = data.draw(st.sampled_from([None] * 8 + list(DependencyKind)))
        if kind is DependencyKind.SINGLETON:
            return (Dependency(kind),)
        if kind is None or not self.known:
            return ()
        on = JobId(data.draw(st.sampled_from(sorted(self.known))))
        delay = 120 if kind is DependencyKind.AFTER else 0
        return (Dependency(kind, on, delay),)

    @rule(count=st.integers(2, 5), request=requests, runtime=st.integers(1, 900))
    def submit_many(self, count: int, request: JobRequest, runtime: int) -> None:
        for _ in range(count):
            try:
                number = int(self.sim.submit(request, runtime))
            except SubmissionRejected:
                return
            self.known[number] = Known(request, self.now(), request.held, 0)

    @rule(seconds=st.sampled_from([0, 1, 7, 60, 300, 2000]))
    def advance(self, seconds: int) -> None:
        self.sim.run_until(self.now() + seconds)

    @rule(seconds=st.integers(1, 400))
    def advance_a_little(self, seconds: int) -> None:
        self.sim.run_until(self.now() + seconds)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.sim.cancel(self.pick(data))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        number = self.pick(data)
        self.sim.hold(number)
        self.known[number].held = True

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        number = self.pick(data)
        self.sim.release(number)
        self.known[number].held = False

    @precondition(lambda self: self.known)
    @rule(data=st.data(), nice=st.integers(-1000, 1000))
    def renice(self, data: st.DataObject, nice: int) -> None:
        self.sim.set_nice(self.pick(data), nice)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), delay=st.integers(0, 600))
    def delay(self, data: st.DataObject, delay: int) -> None:
        number = self.pick(data)
        if self.job(number).state is JobState.PENDING:
            self.sim.set_begin(number, self.now() + delay)
            self.known[number].begin = self.now() + delay

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        number = self.pick(data)
        nodes = self.node_list(self.known[number].request, data)
        if self.job(number).state is JobState.PENDING:
            self.sim.set_node_list(number, nodes)
            self.known[number].request = replace(self.known[number].request, node_list=nodes)

    @rule(data=st.data(), state=st.sampled_from(["down", "drain", "resume", "resume", "resume"]))
    def nodes_change(self, data: st.DataObject, state: str) -> None:
        name = data.draw(st.sampled_from(self.nodes_of("")))
        if state == "down":
            for number in self.known:
                if name in self.on(number):
                    self.known[number].downed = True
        self.sim.set_nodes((name,), state)
        (self.unusable.discard if state == "resume" else self.unusable.add)(name)

    @precondition(lambda self: len(self.reserved) < 2)
    @rule(data=st.data(), delay=st.integers(0, 600), length=st.integers(60, 1500))
    def reserve(self, data: st.DataObject, delay: int, length: int) -> None:
        name = data.draw(st.sampled_from(self.nodes_of("")))
        first = self.now() + delay
        made = Reservation(f"r{len(self.reserved)}", first, first + length, (name,), users=("vip",))
        self.sim.reserve(made)
        self.reserved.append((made, {n for n in self.known if self.on(n)}))

    @rule(seconds=st.sampled_from([30, 500]))
    def copies_go_on_alike_and_leave_the_original(self, seconds: int) -> None:
        one, two = self.sim.copy(), self.sim.copy()
        before = self.sim.events().tolist()
        until = self.now() + seconds
        one.run_until(until)
        assert self.sim.events().tolist() == before
        assert int(self.sim.now) == until - seconds
        two.run_until(until)
        assert one.events().tolist() == two.events().tolist()
        self.sim.run_until(until)
        assert self.sim.events().tolist() == one.events().tolist()

    # What must hold

    @invariant()
    def its_own_invariants_hold(self) -> None:
        self.sim.check()

    @invariant()
    def every_job_is_in_one_state(self) -> None:
        pending, running = self.sim.columns()
        seen = Counter([*pending.job_id.tolist(), *running.job_id.tolist()])
        assert not seen or max(seen.values()) == 1
        for number in self.known:
            state = self.job(number).state
            assert (number in pending.job_id.tolist()) == (state is JobState.PENDING)
            assert (number in running.job_id.tolist()) == (state is JobState.RUNNING)
        assert set(seen) <= set(self.known)

    @invariant()
    def nothing_is_given_twice(self) -> None:
        cpus: Counter[str] = Counter()
        gres: Counter[tuple[str, str]] = Counter()
        for number in self.known:
            request = self.known[number].request
            held_nodes = self.on(number)
            assert not held_nodes or len(held_nodes) == len(set(held_nodes)) == request.nodes
            assert set(held_nodes) <= set(self.nodes_of(request.partition))
            for name in held_nodes:
                cpus[name] += CPUS if self.whole(request) else max(1, request.cpus_per_node)
                for kind, amount in request.gres_per_node:
                    gres[name, kind] += amount
        assert all(used <= CPUS for used in cpus.values()), cpus
        totals = dict(GRES)
        for (name, kind), used in gres.items():
            assert used <= totals.get(kind, sum(totals.values())), gres
            total_used = sum(u for (n, _), u in gres.items() if n == name)
            assert total_used <= sum(totals.values()), gres

    @invariant()
    def jobs_stand_on_the_nodes_that_they_list(self) -> None:
        for number, known in self.known.items():
            job = self.job(number)
            if job.state is JobState.PENDING:
                assert job.node_list == known.request.node_list
            elif job.start >= T0:
                assert set(expand(known.request.node_list)) <= set(expand(job.node_list))
                assert job.state is not JobState.RUNNING or set(expand(job.node_list)) == set(self.on(number))

    @invariant()
    def nothing_starts_too_early(self) -> None:
        for number, known in self.known.items():
            job = self.job(number)
            if job.state is JobState.PENDING or job.start < T0:
                continue
            assert job.start >= known.submitted
            if not known.downed:
                assert job.start >= known.begin
            for condition in known.request.dependencies:
                self.dependency_was_satisfied(job, condition)

    def dependency_was_satisfied(self, job: Job, condition: Dependency) -> None:
        if condition.kind is DependencyKind.SINGLETON:
            return
        other = self.job(condition.job_id)
        if self.known[int(other.job_id)].downed:
            return  # it ran, and was sent back to the queue
        if condition.kind is DependencyKind.AFTER:
            begun = other.start if other.start >= T0 else other.end
            assert job.start >= begun + condition.delay
            return
        assert other.state.finished
        assert job.start >= other.end
        if condition.kind is DependencyKind.AFTEROK:
            assert other.state is JobState.COMPLETED
        if condition.kind is DependencyKind.AFTERNOTOK:
            assert other.state is not JobState.COMPLETED

    @invariant()
    def limits_hold(self) -> None:
        most = self.config.default_association.max_jobs
        running = Counter(k.request.user for n, k in self.known.items() if self.on(n))
        assert most < 0 or all(count <= most for count in running.values()), running

    @invariant()
    def no_job_outlives_its_limit(self) -> None:
        for number in self.known:
            job = self.job(number)
            if job.state.finished and job.start >= T0:
                assert job.end - job.start <= job.limit + self.config.scheduler.over_time_limit

    @invariant()
    def reservations_and_closed_nodes_are_respected(self) -> None:
        for number, known in self.known.items():
            job = self.job(number)
            for name in self.on(number):
                fresh = job.start == self.now() and number not in self.running_on.get(name, set())
                assert not (fresh and name in self.unusable and not known.downed)
                for made, before in self.reserved:
                    if name in made.nodes and number not in before:
                        assert job.start >= made.end or job.start + job.limit <= made.start
        self.running_on = {name: {n for n in self.known if name in self.on(n)} for name in self.nodes_of("")}

    # Notes

    def pick(self, data: st.DataObject) -> JobId:
        return JobId(data.draw(st.sampled_from(sorted(self.known))))

    def on(self, number: int) -> tuple[str, ...]:
        """The nodes of a running job; none otherwise."""
        running = self.job(number).state is JobState.RUNNING
        return tuple(self.sim.allocation(JobId(number))) if running else ()

    def nodes_of(self, name: str) -> tuple[str, ...]:
        return next(p.nodes for p in self.config.partitions if p.name == (name or "main"))

    def whole(self, request: JobRequest) -> bool:
        return request.exclusive or self.config.partitions[0].exclusive


Cluster.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCluster = Cluster.TestCase
