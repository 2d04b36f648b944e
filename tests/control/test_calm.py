"""Far from any act the whole queue is read seldom, and the next poll may come later; no act comes much later."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.control.calm import QueueReads, is_calm
from mirage.control.clocks import Pace, Pacing
from mirage.control.status import Cycle
from mirage.control.stores import MemoryStore
from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.command import PauseChain
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import NEVER, JobId, JobRequest, JobState, WarnSignal
from mirage.domain.link import Link, LinkState

INTERVAL, CALM, JITTER = 60, 300, 0.1
GO_ON = FailurePolicy(FailureAction.CONTINUE)
FOREVER = FailurePolicies(GO_ON, GO_ON, GO_ON)


class Counting(FakeCluster):
    """Notes of each poll whether it read the queue."""

    def snapshot(self, *, queue: bool = True, **asked):
        self.__dict__.setdefault("polls", []).append(queue)
        return super().snapshot(queue=queue, **asked)


def polls_of_an_hour(queue_age: int) -> list[bool]:
    cluster = Counting(lambda request: Fate(wait=0))
    made = chain(done=DoneCondition(links=3))
    service = Service(cluster, "fixed:1h", chain_=made, queue_age=queue_age, between_polls=True)
    service.run(10 * HOUR, tick=10 * MIN)
    cluster.polls.clear()
    for minute in range(60):
        service.cycle(10 * HOUR + minute * MIN)
    return cluster.polls


def test_the_queue_is_read_seldom_where_nothing_is_due() -> None:
    assert polls_of_an_hour(900).count(True) <= 7


def test_without_a_bound_only_predictors_have_the_queue_read() -> None:
    assert polls_of_an_hour(0).count(True) == 0, "fixed:1h needs none"


def test_only_a_calm_cycle_lengthens_the_interval() -> None:
    pace = Pace(Pacing(interval=INTERVAL, jitter=0.0, calm=CALM), np.random.default_rng(1))
    assert pace.interval() == INTERVAL
    pace.rest(True)
    assert (pace.interval(), pace.longest_now) == (CALM, CALM)
    pace.rest(False)
    assert pace.interval() == INTERVAL


CYCLE = Cycle("", NEVER, deciding=True)


def read_at(reads: QueueReads, cycle: Cycle, *times: int) -> list[int]:
    """At which of these times the queue is read."""
    found = []
    for now in times:
        whole = reads.due(900, cycle, now)
        reads.done(now, whole=whole)
        found += [now] if whole else []
    return found


def test_the_queue_is_read_more_often_where_a_forecast_is_to_decide_soon() -> None:
    minutes = range(0, 1_801, 60)
    assert read_at(QueueReads(), CYCLE, *minutes) == [0, 900, 1_800]
    assert read_at(QueueReads(), replace(CYCLE, wake=0), *minutes) == [0, 900, 1_800], "no forecast decides"
    calm = replace(CYCLE, forecast=True, calm=True)
    assert read_at(QueueReads(), calm, *minutes) == [0, 600, 1_200, 1_800]
    assert read_at(QueueReads(), replace(calm, calm=False), *minutes) == list(range(0, 1_801, 240))[:8]
    assert read_at(QueueReads(), replace(calm, wake=0), *minutes) == list(minutes)


def test_an_unanswered_poll_and_a_command_have_the_queue_read() -> None:
    reads = QueueReads()
    assert read_at(reads, CYCLE, 0, 60) == [0]
    reads.failed()
    assert read_at(reads, CYCLE, 120, 180) == [120]
    reads.hurry()
    assert read_at(reads, CYCLE, 200, 240, 300) == [200]
    assert read_at(reads, CYCLE, 100) == [100], "the clock was set back"


def test_a_command_has_the_queue_read_in_its_cycle() -> None:
    cluster = Counting(lambda request: Fate(wait=0))
    service = Service(cluster, "fixed:1h", queue_age=900, between_polls=True)
    service.run(10 * HOUR, tick=10 * MIN)
    service.cycle(10 * HOUR + 1)
    cluster.polls.clear()
    service.cycle(10 * HOUR + 2 * MIN)
    service.commands.put(PauseChain(service.record.chain.chain_id, "alice"))
    service.cycle(10 * HOUR + 3 * MIN)
    assert cluster.polls == [False, True]


def running(number: int, *, start: int = 0, limit: int = 48 * HOUR, **more) -> Link:
    made = Link(
        number, f"mirage:svc:{number}", start, LinkState.RUNNING, JobId(number), start, start, start + limit
    )
    return replace(made, limit=limit, limit_end=start + limit, **more)


def queued(number: int) -> Link:
    return Link(number, f"mirage:svc:{number}", 0, LinkState.PENDING, JobId(number), 0)


OVERLAP = HandoverSettings(HandoverPolicy.OVERLAP)
SOON, END = 10 * HOUR, 48 * HOUR


@pytest.mark.parametrize(
    ("record", "bound", "calm"),
    [
        pytest.param(ChainRecord(chain(), (running(1),)), False, True, id="one runs"),
        pytest.param(ChainRecord(chain(), (running(1, start=SOON - 60),)), False, False, id="it has just started"),
        pytest.param(ChainRecord(chain(), (running(1, retired=SOON),)), False, False, id="it is to exit"),
        pytest.param(ChainRecord(chain(), (running(1), queued(2))), False, True, id="one writer"),
        pytest.param(ChainRecord(chain(handover=OVERLAP), (running(1), queued(2))), True, True, id="held"),
        pytest.param(ChainRecord(chain(handover=OVERLAP), (running(1), queued(2))), False, False, id="may start"),
        pytest.param(ChainRecord(chain(handover=OVERLAP), (running(1), running(2))), True, False, id="two run"),
        pytest.param(ChainRecord(chain(), (queued(1),)), False, True, id="the first waits"),
        pytest.param(ChainRecord(chain(), ()), False, False, id="nothing is there"),
        pytest.param(ChainRecord(chain(), (), ChainStatus.PAUSED), False, True, id="paused"),
        pytest.param(
            ChainRecord(chain(done=DoneCondition(file="/home/alice/done")), (running(1),)), False, False, id="file"
        ),
        pytest.param(
            ChainRecord(chain(), (running(1),), ChainStatus.STOPPED, cancel_running=True), False, False, id="over"
        ),
    ],
)
def test_a_chain_is_calm_while_only_a_failure_can_call_for_an_act(record, bound, calm) -> None:
    assert is_calm(record, SOON, END, bound=bound) is calm
    assert not is_calm(record, SOON, SOON + 600, bound=bound), "something is due soon"


def test_a_chain_whose_last_link_ended_early_is_not_calm_without_a_successor() -> None:
    ended = replace(running(1), state=LinkState.ENDED, end=HOUR, job_state=JobState.FAILED)
    second = running(2, start=2 * HOUR)
    assert not is_calm(ChainRecord(chain(), (ended, second)), SOON, END)
    assert is_calm(ChainRecord(chain(), (ended, second, queued(3))), SOON, END)
    assert is_calm(ChainRecord(chain(), (replace(ended, end=48 * HOUR), second)), SOON, END)


class Acting(FakeCluster):
    """Notes every act."""

    acts: tuple[str, ...] = ()

    def submit(self, request):
        self.acts += (f"submit {request.tag}",)
        return super().submit(request)

    def cancel(self, job_id, owner):
        self.acts += (f"cancel {job_id}",)
        super().cancel(job_id, owner)

    def update(self, job_id, owner, change):
        self.acts += (f"update {job_id} {change}",)
        super().update(job_id, owner, change)

    def signal(self, job_id, owner, signal, *, reach):
        self.acts += (f"signal {job_id}",)
        super().signal(job_id, owner, signal, reach=reach)


class Lateness:
    """Plays a chain by the calm loop; in each longer pause a loop without pauses shows what is due."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed, self.longest_pause, self.calm_pauses = seed, 0, 0
        self.scheduled, self.surprised = 0, 0
        """The largest lateness in seconds: of acts that need no news of the cluster, and of others."""

    def fate(self, request: JobRequest) -> Fate:
        rng = np.random.default_rng([self.seed, int(request.tag.rpartition(":")[2])])
        wait = int(rng.choice([0, 0, 30, 20 * MIN, 2 * HOUR]))
        runtime = None if rng.random() < 0.6 else int(rng.integers(1, 5 * HOUR))
        state = JobState(rng.choice([JobState.FAILED, JobState.NODE_FAIL, JobState.COMPLETED, JobState.CANCELLED]))
        obeys = None if rng.random() < 0.5 else int(rng.integers(1, 90))
        return Fate(wait, runtime, state, exit_code=1, obeys=obeys)

    def service(self) -> Service:
        rng = self.rng
        policy = rng.choice([HandoverPolicy.NONE, HandoverPolicy.OVERLAP, HandoverPolicy.ON_START])
        most = int(rng.choice([0, 40 * MIN]))
        handover = HandoverSettings(HandoverPolicy(policy), WarnSignal("TERM", 60), most)
        steering = Steering(rng.choice(list(Steering)))
        predictor = str(rng.choice(["reactive", "fixed:1h", "fixed:90m", "quantile"]))
        made = chain(
            int(rng.choice([3, 6])) * HOUR,
            DoneCondition(exit_code=None, links=8),
            FOREVER,
            handover=handover,
            steering=steering,
            lead=int(rng.choice([0, 600, 5_400])),
        )
        cluster = Acting(self.fate, waits=[HOUR, 2 * HOUR, 90 * MIN] * 10)
        return Service(cluster, predictor, chain_=made, queue_age=900, between_polls=True)

    def play(self, until: int) -> tuple[str, ...]:
        service = self.service()
        pace = Pace(Pacing(INTERVAL, JITTER, calm=CALM), self.rng)
        now, cluster = 0, service.cluster
        while now < until and not (service.record.over and not service.record.live):
            cluster.advance(now)
            cycle = service.loop.cycle()
            service.record.check()
            pace.rest(cycle.calm)
            following = now + max(1, min(round(pace.interval()), cycle.wake - now))
            self._probe(service, now, following)
            now = following
        return cluster.acts

    def _probe(self, service: Service, now: int, following: int) -> None:
        self.longest_pause = max(self.longest_pause, following - now)
        if following - now <= INTERVAL * (1 + JITTER):
            return
        self.calm_pauses += 1
        before = service.cluster.link_states()
        for minute in range(now + 30, following, 30):
            twin = Service.__new__(Service)
            twin.cluster, twin.store = deepcopy(service.cluster), MemoryStore()
            twin.store.save(service.record)
            twin.predictor, twin.policy = service.predictor, replace(service.policy, queue_age=0)
            twin.crash()
            twin.cluster.advance(minute)
            twin.loop.cycle()
            if twin.cluster.acts != service.cluster.acts:
                kind = "scheduled" if twin.cluster.link_states()[: len(before)] == before else "surprised"
                setattr(self, kind, max(getattr(self, kind), following - minute))
                return


@pytest.mark.parametrize("seed", range(12))
def test_no_act_is_later_than_the_calm_interval(seed: int) -> None:
    lateness = Lateness(seed)
    acts = lateness.play(12 * HOUR)
    assert acts
    assert lateness.longest_pause <= CALM * (1 + JITTER)
    assert lateness.scheduled == 0, f"what was known in advance: {acts}"
    assert lateness.surprised <= CALM * (1 + JITTER)


def test_the_property_covers_calm_pauses_and_surprises() -> None:
    played = [Lateness(seed) for seed in range(12, 16)]
    for each in played:
        each.play(12 * HOUR)
    assert sum(each.calm_pauses for each in played) > 100
    assert max(each.surprised for each in played) > INTERVAL
