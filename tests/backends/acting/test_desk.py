"""The agent queue: only the owner's agents run a request, at most once, whichever process dies at any time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto

import pytest
from fakes import FakeCluster, chain
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.backends.agent_queue import AgentActuator, AgentQueue, QueueTimeouts
from mirage.backends.agent_requests import AgentRequest, AgentResponse, CancelJob, Verdict
from mirage.backends.owner_turns import OwnerTurns, TurnLimits
from mirage.backends.user_side import execute
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.job import JobChange, JobId, SignalReach

DONE = AgentResponse(Verdict.DONE)
CANCEL = CancelJob(JobId(7))


@dataclass
class Late:
    """The entries of the journal."""

    told: list[tuple[str, str, AgentResponse]] = field(default_factory=list)

    def __call__(self, user: str, order_id: str, answer: AgentResponse) -> None:
        self.told.append((user, order_id, answer))


class Stopwatch:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def desk(patience: QueueTimeouts = QueueTimeouts(answer=30), **options: object) -> AgentQueue:  # noqa: B008 (frozen)
    return AgentQueue(Late(), patience, **options)  # type: ignore[arg-type]


def agent(at: AgentQueue, user: str, cluster: FakeCluster, orders: int = 1) -> threading.Thread:
    """An agent that executes this number of requests with the cluster as its Slurm."""

    def serve() -> None:
        for _ in range(orders):
            order = None
            while order is None:
                order = at.next_order(user, 0.05)
            at.answer(user, order.order_id, execute(order, cluster))

    at.attach(user)
    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_an_agent_does_what_its_owner_may() -> None:
    cluster, at = FakeCluster(), desk()
    request = chain().link_request(1)
    serving = agent(at, "alice", cluster, orders=3)
    actuator = AgentActuator(at)
    job_id = actuator.submit(request)
    assert cluster.jobs[job_id].tag == request.tag
    actuator.signal(job_id, "alice", "USR1", reach=SignalReach.BATCH)
    assert cluster.signals == [(job_id, "USR1")]
    actuator.cancel(job_id, "alice")
    assert cluster.jobs[job_id].state.finished
    serving.join()


def test_slurms_refusals_arrive() -> None:
    cluster, at = FakeCluster(refuse="PartitionTimeLimit"), desk()
    serving = agent(at, "alice", cluster, orders=2)
    with pytest.raises(SubmissionRejected, match="PartitionTimeLimit"):
        AgentActuator(at).submit(chain().link_request(1))
    with pytest.raises(UnknownJob):
        AgentActuator(at).update(JobId(1), "alice", JobChange(nice=1))
    serving.join()


def test_without_an_agent_nothing_is_asked() -> None:
    at = desk()
    at.attach("alice")
    with pytest.raises(NotPermitted, match="no process can act for bob: bob must run `mirage agent`"):
        AgentActuator(at).cancel(JobId(1), "bob")


def test_an_agent_unheard_of_is_gone() -> None:
    stopwatch = Stopwatch()
    at = desk(stopwatch=stopwatch)
    at.attach("alice")
    assert at.attached("alice")
    stopwatch.time = 16
    assert not at.attached("alice")
    assert at.next_order("alice", 0) is None
    assert at.attached("alice")


def test_an_order_that_nobody_takes_is_withdrawn() -> None:
    at = desk(QueueTimeouts(start=0.05))
    at.attach("alice")
    with pytest.raises(NotPermitted):
        at.ask("alice", CANCEL)
    assert at.next_order("alice", 0) is None


def test_order_taken_by_no_agent_is_withdrawn_with_the_turn() -> None:
    """The caller waits no longer than the turn, and knows that nothing happened; a later agent gets nothing."""
    at = desk(QueueTimeouts(start=60))
    at.attach("alice")
    turns = OwnerTurns(at.ask, TurnLimits(share=0.1), withdraw=at.withdraw)
    with pytest.raises(NotPermitted, match="mirage agent"):
        turns("alice", CANCEL)
    assert at.next_order("alice", 0) is None


def test_order_that_an_agent_took_is_not_withdrawn() -> None:
    at = desk(QueueTimeouts(start=60, answer=60))
    at.attach("alice")
    turns = OwnerTurns(at.ask, TurnLimits(share=5), withdraw=at.withdraw)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(turns, "alice", CANCEL)
        order = at.next_order("alice", 5)
        assert order is not None
        at.withdraw("alice")
        assert at.answer("alice", order.order_id, DONE)
        assert result.result(5) == DONE


def test_an_agent_that_dies_leaves_the_outcome_unknown() -> None:
    at = desk(QueueTimeouts(answer=0.05))
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(at.next_order, "alice", 30)
        while not at.attached("alice"):
            pass
        with pytest.raises(ClusterUnavailable, match="the agent of alice was told to cancel job 7"):
            at.ask("alice", CANCEL)
        order = taken.result()
    assert order is not None
    assert order.act == CANCEL


def test_a_late_answer_is_kept_and_changes_nothing() -> None:
    late = Late()
    at = AgentQueue(late, QueueTimeouts(answer=0.05))
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(at.next_order, "alice", 30)
        while not at.attached("alice"):
            pass
        with pytest.raises(ClusterUnavailable):
            at.ask("alice", CANCEL)
        order = taken.result()
    assert order is not None
    assert not at.answer("alice", order.order_id, DONE)
    assert late.told == [("alice", order.order_id, DONE)]
    assert not at.answer("alice", order.order_id, DONE)
    assert len(late.told) == 1, "once"
    assert at.next_order("alice", 0) is None


def test_desk_late_answers_of_one_user_push_out_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.backends.agent_queue._MOST_LATE", 2)
    late = Late()
    at = AgentQueue(late, QueueTimeouts(answer=0.01))
    orders: list[tuple[str, str]] = []
    with ThreadPoolExecutor(1) as threads:
        for user in ("bob", "alice", "alice", "alice", "alice"):
            at.attach(user)
            taken = threads.submit(at.next_order, user, 30)
            with pytest.raises(ClusterUnavailable):
                at.ask(user, CANCEL)
            order = taken.result()
            assert order is not None
            orders.append((user, order.order_id))
    for user, order_id in orders:
        at.answer(user, order_id, DONE)
    assert [user for user, _, _ in late.told] == ["bob", "alice", "alice"]


def test_answer_without_an_order_is_not_recorded() -> None:
    late = Late()
    at = AgentQueue(late)
    for number in range(1_000):
        assert at.find_unanswered("alice", f"invented{number}") is None
        assert not at.answer("alice", f"invented{number}", DONE)
    assert late.told == []


def test_answers_are_the_owners() -> None:
    at = desk()
    with ThreadPoolExecutor(1) as threads:
        at.attach("alice")
        asked = threads.submit(at.ask, "alice", CANCEL)
        assert at.next_order("bob", 0) is None
        order = at.next_order("alice", 30)
        assert order is not None
        assert at.find_unanswered("bob", order.order_id) is None
        assert not at.answer("bob", order.order_id, AgentResponse(Verdict.REJECTED))
        assert at.answer("alice", order.order_id, DONE)
        assert not at.answer("alice", order.order_id, AgentResponse(Verdict.REJECTED)), "the first answer counts"
        assert asked.result() == DONE


def test_an_answer_cannot_come_before_the_order_was_taken() -> None:
    late = Late()
    at = AgentQueue(late, QueueTimeouts(start=0.2))
    with ThreadPoolExecutor(1) as threads:
        at.attach("alice")
        asked = threads.submit(at.ask, "alice", CANCEL)
        while not (known := list(at._out)):
            pass
        assert not at.answer("alice", known[0], DONE)
        with pytest.raises(NotPermitted):
            asked.result()


def test_an_order_taken_late_is_not_begun() -> None:
    cluster = FakeCluster()
    order = AgentRequest.of(chain().link_request(1), "alice", 100)
    answer = execute(order, cluster, now=lambda: 103.5)
    assert cluster.submissions == []
    with pytest.raises(NotPermitted, match=r"submit mirage:svc:1 for alice came 4 s too late"):
        answer.job()
    assert execute(order, cluster, now=lambda: 99.0).job() in cluster.jobs


class Fate(Enum):
    """The ways in which an agent can fail after it has taken a request."""

    SERVES = auto()
    DIES_BEFORE = auto()
    DIES_AFTER = auto()
    ANSWERS_TWICE = auto()


USERS = ("alice", "bob")


@settings(max_examples=25)
@given(
    fates=st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(Fate)), max_size=8),
    orders=st.lists(st.sampled_from(USERS), min_size=1, max_size=8),
)
def test_every_order_is_executed_at_most_once(fates: list[tuple[str, Fate]], orders: list[str]) -> None:
    at = desk(QueueTimeouts(start=0.02, answer=0.02))
    executed: list[tuple[str, int]] = []
    over = threading.Event()

    def work(user: str, fate: Fate) -> None:
        while not over.is_set():
            order = at.next_order(user, 0.005)
            if order is None:
                continue
            assert order.cancel is not None
            if fate is Fate.DIES_BEFORE:
                return
            executed.append((user, order.cancel.job_id))
            if fate is Fate.DIES_AFTER:
                return
            for _ in range(2 if fate is Fate.ANSWERS_TWICE else 1):
                at.answer(user, order.order_id, AgentResponse(Verdict.DONE, order.cancel.job_id))

    def ask(job_id: int, owner: str) -> str:
        try:
            answer = at.ask(owner, CancelJob(JobId(job_id)))
        except (NotPermitted, ClusterUnavailable) as error:
            return type(error).__name__
        assert answer.job_id == job_id, "an answer to another order"
        return "done"

    with ThreadPoolExecutor(len(fates) + 1) as agents, ThreadPoolExecutor(len(orders)) as askers:
        working = [agents.submit(work, *each) for each in fates]
        outcomes = list(askers.map(ask, range(1, len(orders) + 1), orders))
        over.set()
        for each in working:
            each.result()
    assert len(executed) == len(set(executed))
    done = {(owner, at + 1) for at, owner in enumerate(orders) if outcomes[at] == "done"}
    not_begun = {(owner, at + 1) for at, owner in enumerate(orders) if outcomes[at] == "NotPermitted"}
    assert done <= set(executed)
    assert not (not_begun & set(executed))
    assert set(executed) <= {(owner, at + 1) for at, owner in enumerate(orders)}, "in another's name"
    assert not at._out
