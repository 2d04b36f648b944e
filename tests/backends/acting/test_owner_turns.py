"""A process of one user that hangs, is slow or floods delays that user alone."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from mirage.backends.agent_requests import AgentResponse, CancelJob, UpdateJob, Verdict
from mirage.backends.owner_turns import OwnerTurns, TurnLimits
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import BatchScript, Dependency, DependencyKind, JobChange, JobId, JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.backends.agent_requests import Act

ACT = CancelJob(JobId(7))
DONE = AgentResponse(Verdict.DONE, JobId(7))


class Side:
    """The users' side: mallory's process answers on a signal of the test, all other users' immediately."""

    def __init__(self) -> None:
        self.go, self.begun, self.error = Event(), 0, False

    def ask(self, owner: str, act: Act) -> AgentResponse:
        if owner == "mallory":
            self.begun += 1
            assert self.go.wait(60)
            if self.error:
                raise ClusterUnavailable("no answer")
        return DONE


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side()
    yield made
    made.go.set()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def refused(turns: OwnerTurns) -> bool:
    try:
        turns("mallory", ACT)
    except NotPermitted:
        return True
    except ClusterUnavailable:
        return False
    return False


def test_a_hanging_act_takes_the_owners_share_once_and_nobody_elses(side: Side) -> None:
    turns = OwnerTurns(side.ask, TurnLimits(share=2))
    with pytest.raises(ClusterUnavailable):
        turns("mallory", ACT)
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(NotPermitted):
            turns("mallory", ACT)
        assert turns("alice", ACT) is DONE
    assert time.monotonic() - began < 20, "none of them waited"
    assert side.begun == 1, "nothing else is begun while the outcome of one act is not known"


def test_an_owner_without_answers_waits_longer_each_time_until_one_comes(side: Side) -> None:
    now = [0.0]
    limits = TurnLimits(share=0.05, every=0.05, pause=60, longest_pause=100)
    turns = OwnerTurns(side.ask, limits, lambda: now[0])
    side.error = True
    for pause in (60, 100, 100):
        side.go.clear()
        with pytest.raises(ClusterUnavailable):
            turns("mallory", ACT)
        known = side.begun
        side.go.set()
        until(lambda: not turns._owners["mallory"].running)
        now[0] += pause - 1
        assert refused(turns)
        assert side.begun == known
        now[0] += 1
    side.error = False
    assert turns("mallory", ACT) is DONE
    assert turns("mallory", ACT) is DONE


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        ("", "check the agent or helper process of mallory"),
        ("slurmrestd at unix:/s", "check slurmrestd at unix:/s"),
    ],
)
def test_owner_without_answers_is_told_what_to_check(side: Side, behind: str, words: str) -> None:
    turns = OwnerTurns(side.ask, TurnLimits(share=0.05, every=0.05), lambda: 0.0, behind=behind)
    side.error = True
    with pytest.raises(ClusterUnavailable):
        turns("mallory", ACT)
    side.go.set()
    until(lambda: not turns._owners["mallory"].running)
    with pytest.raises(NotPermitted, match=f"1 operations in a row timed out; {words}$"):
        turns("mallory", ACT)


def test_slow_answers_take_no_more_than_the_share_of_the_time(side: Side) -> None:
    now = [0.0]

    def slow(owner: str, act: Act) -> AgentResponse:
        now[0] += 4
        return DONE

    turns = OwnerTurns(slow, TurnLimits(share=10, every=60, together=1_000), lambda: now[0])
    began = 0
    while now[0] < 6_000:
        before = now[0]
        if refused(turns):
            now[0] += 1
        else:
            began += now[0] - before
    assert began == pytest.approx(1_000, rel=0.05)


def test_quick_errors_of_the_cluster_are_passed_on_without_a_pause() -> None:
    def down(owner: str, act: Act) -> AgentResponse:
        raise ClusterUnavailable("controller down")

    turns = OwnerTurns(down)
    for _ in range(20):
        with pytest.raises(ClusterUnavailable, match="controller down"):
            turns("alice", ACT)


def test_acts_under_way_are_bounded_over_all_owners() -> None:
    go = Event()

    def hang(owner: str, act: Act) -> AgentResponse:
        assert go.wait(60)
        return DONE

    turns = OwnerTurns(hang, TurnLimits(share=0.01, under_way=3))
    for owner in "abc":
        with pytest.raises(ClusterUnavailable):
            turns(owner, ACT)
    with pytest.raises(NotPermitted):
        turns("d", ACT)
    go.set()
    until(lambda: turns._under_way == 0)
    assert turns("d", ACT) is DONE


def test_an_act_without_a_thread_is_not_begun_and_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = OwnerTurns(lambda owner, act: DONE)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", out_of_threads)
        with pytest.raises(NotPermitted):
            turns("alice", ACT)
    assert turns("alice", ACT) is DONE


def out_of_threads(thread: Thread) -> None:
    raise RuntimeError("can't start new thread")


OWNERS = [f"slow{number}" for number in range(6)]


class Slow:
    """Acts of the slow owners end on a signal of the test, others' immediately."""

    def __init__(self) -> None:
        self.go, self.begun = Event(), Counter[str]()
        self.result: AgentResponse | Exception = DONE

    def ask(self, owner: str, act: Act) -> AgentResponse:
        self.begun[owner] += 1
        if owner in OWNERS:
            assert self.go.wait(60)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_slow_owners_together_hold_up_a_cycle_only_so_long() -> None:
    slow = Slow()
    turns = OwnerTurns(slow.ask, TurnLimits(together=2, together_every=2_000))
    began = time.monotonic()
    for _ in range(3):
        for owner in OWNERS:
            with pytest.raises((ClusterUnavailable, NotPermitted)):
                turns(owner, ACT)
    assert 0.9 < time.monotonic() - began < 4, "2 s, and what the machine adds"
    assert slow.begun == dict.fromkeys(OWNERS, 1)
    slow.go.set()
    until(lambda: turns._under_way == 0)


@pytest.mark.parametrize("result", [DONE, SubmissionRejected("QOSLimit"), NotPermitted("no")])
@pytest.mark.parametrize("act", [ACT, JobRequest("svc", "slow0", 60, tag="mirage:svc:1")])
def test_result_that_came_late_is_told_to_the_next_attempt(act: Act, result: AgentResponse | Exception) -> None:
    slow = Slow()
    slow.result = result
    turns = OwnerTurns(slow.ask, TurnLimits(together=0.01))
    with pytest.raises(ClusterUnavailable):
        turns("slow0", act)
    slow.go.set()
    until(lambda: turns._under_way == 0)
    again = replace(act, dependencies=(Dependency(DependencyKind.AFTERANY, JobId(9)),)) if act != ACT else act
    assert told(turns, again) is result
    assert slow.begun["slow0"] == 1
    until(lambda: told(turns, again) is result)
    assert slow.begun["slow0"] > 1, "once"


@pytest.mark.parametrize("fails", [False, True])
def test_late_results_keep_no_script(fails: bool) -> None:
    """Results of sixty acts with 2 MB each, which no client reads."""
    given_up = Event()

    def ask(owner: str, act: Act) -> AgentResponse:
        assert isinstance(act, JobRequest)
        assert given_up.wait(60)
        if fails:
            raise SubmissionRejected("no") from ValueError(len(str(act)))
        return DONE

    turns = OwnerTurns(ask, TurnLimits(share=1e-3, every=1e-6))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(60):
            script = BatchScript(str(number) + "x" * (2 << 20))
            request = JobRequest("svc", "mallory", 60, tag=f"mirage:c:{number}", batch=script)
            with pytest.raises(ClusterUnavailable):
                turns("mallory", request)
            given_up.set()
            until(lambda: not turns._owners["mallory"].running)
            given_up.clear()
        del script, request
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(turns._owners["mallory"].late) == 60
    assert after - before < 20 << 20


def test_late_result_is_not_told_of_another_change() -> None:
    slow = Slow()
    turns = OwnerTurns(slow.ask, TurnLimits(together=0.01))
    hold, release = (UpdateJob(JobId(7), JobChange(held=held)) for held in (True, False))
    with pytest.raises(ClusterUnavailable):
        turns("slow0", hold)
    slow.go.set()
    until(lambda: turns._under_way == 0)
    for act in (release, hold):
        begun = slow.begun["slow0"]
        told(turns, act)
        until(lambda: turns._under_way == 0)
        assert slow.begun["slow0"] == begun + 1


def told(turns: OwnerTurns, act: Act) -> AgentResponse | Exception:
    try:
        return turns("slow0", act)
    except (ClusterUnavailable, NotPermitted, SubmissionRejected) as error:
        return error
