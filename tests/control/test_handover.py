"""Two links run at the same time: which of them exits, when, and the effect on the chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import (
    ChainRecord,
    ChainStatus,
    DoneCondition,
    HandoverPolicy,
    HandoverSettings,
    Steering,
)
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.job import JobState, SignalReach, WarnSignal
from mirage.domain.link import Link, LinkState
from mirage.provisioner.failures import end_name
from mirage.provisioner.handover import let_run

if TYPE_CHECKING:
    from mirage.domain.job import JobId
    from mirage.domain.journal import Entry

FOREVER = DoneCondition(links=3)
SIGNAL = WarnSignal("USR1", 10 * MIN)


def overlapping(handover: HandoverSettings, obeys: int | None = None, wait: int = HOUR) -> Service:
    """Links wait an hour and are submitted three hours early: two hours of overlap where no link exits early."""
    cluster = FakeCluster(lambda request: Fate(wait=wait, obeys=obeys))
    return Service(cluster, "fixed:3h", chain_=chain(done=FOREVER, handover=handover))


def overlaps(record: ChainRecord) -> list[int]:
    return [outcome.overlap for outcome in record.outcomes()]


def test_a_forecast_longer_than_the_links_does_not_use_up_one_after_another() -> None:
    """The queue has emptied but the forecast is still an hour: links start immediately."""
    cluster = FakeCluster(lambda request: Fate(obeys=0))
    wanted = chain(
        limit=20 * MIN, done=DoneCondition(links=12), handover=HandoverSettings(HandoverPolicy.ON_START, SIGNAL)
    )
    record = Service(cluster, "fixed:1h", chain_=wanted).run(24 * HOUR, tick=MIN)
    assert record.reason == "12 links have run"
    ran = [link.end - link.start for link in record.links]
    assert sum(run < 10 * MIN for run in ran[:9]) == 1, "the first of nine alone is replaced as it starts"
    assert sum(run < 10 * MIN for run in ran) <= 2


def test_long_links_are_left_alone_for_longer_the_more_were_replaced() -> None:
    cluster = FakeCluster(lambda request: Fate(obeys=0))
    wanted = chain(
        limit=48 * HOUR, done=DoneCondition(links=7), handover=HandoverSettings(HandoverPolicy.ON_START, SIGNAL)
    )
    record = Service(cluster, "fixed:50h", chain_=wanted).run(400 * HOUR)
    ran = [(link.end - link.start) // HOUR for link in record.links]
    assert ran[:6] == [0, 1, 2, 4, 8, 16]


def test_a_nice_value_on_an_idle_cluster_does_not_use_up_one_link_after_another() -> None:
    """An idle node takes a link of any nice value, so each one would start as its predecessor does."""
    cluster = FakeCluster(lambda request: Fate(obeys=0), idle=True)
    on_start = HandoverSettings(HandoverPolicy.ON_START, SIGNAL)
    wanted = chain(
        limit=40 * MIN, done=DoneCondition(links=9), handover=on_start, steering=Steering.NICE, lead=5 * MIN
    )
    record = Service(cluster, "reactive", chain_=wanted).run(24 * HOUR, tick=MIN)
    assert record.reason == "9 links have run"
    assert sum(link.end - link.start < 20 * MIN for link in record.links) == 1


def test_with_overlap_both_run_until_the_limit() -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.OVERLAP))
    record = service.run(300 * HOUR)
    assert overlaps(record) == [2 * HOUR, 2 * HOUR]
    assert not service.cluster.signals


def test_on_start_the_predecessor_is_signalled_and_leaves_by_itself() -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.ON_START, SIGNAL), obeys=120)
    record = service.run(300 * HOUR, tick=MIN)
    assert overlaps(record) == [120, 120], "the overlap is what really happened"
    assert service.cluster.signals == [(100, "USR1"), (101, "USR1")]
    assert record.status is ChainStatus.DONE
    assert record.reason == "3 links have run", "a link that exits on the signal has not finished the work"


def test_one_that_ignores_the_signal_is_ended_when_its_grace_is_over() -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.ON_START, SIGNAL))
    record = service.run(300 * HOUR, tick=MIN)
    assert overlaps(record) == [10 * MIN, 10 * MIN]
    assert [link.job_state for link in record.links[:2]] == [JobState.CANCELLED] * 2
    assert record.failures == 0, "Mirage's cancellation is not a failure"
    assert record.reason == "3 links have run"


def test_when_ready_waits_for_the_successors_word() -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.WHEN_READY, SIGNAL), obeys=0)
    service.run(47 * HOUR, tick=MIN)
    assert service.record.links[1].state is LinkState.RUNNING
    service.run(47 * HOUR + 30 * MIN, tick=MIN)
    assert not service.cluster.signals, "the successor loads its model"
    service.cluster.files.add("/home/alice/.mirage/svc.2.ready")
    service.run(48 * HOUR, tick=MIN)
    assert service.cluster.signals == [(100, "USR1")]
    assert service.record.links[0].state is LinkState.ENDED


def test_a_successor_that_never_gets_ready_leaves_the_predecessor_its_limit() -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.WHEN_READY, SIGNAL))
    assert overlaps(service.run(300 * HOUR)) == [2 * HOUR, 2 * HOUR]


def test_the_largest_overlap_bounds_every_policy() -> None:
    for policy in HandoverPolicy:
        service = overlapping(HandoverSettings(policy, SIGNAL, max_overlap=40 * MIN), obeys=0)
        record = service.run(300 * HOUR, tick=MIN)
        expected = 0 if policy in (HandoverPolicy.NONE, HandoverPolicy.ON_START) else 40 * MIN
        assert overlaps(record) == [expected] * 2, policy


def test_link_that_only_left_is_not_taken_for_replaced() -> None:
    """A one-writer link that was retired, or a link whose job was requeued, had no successor next to it."""
    for policy, requeued, expected in (
        (HandoverPolicy.NONE, False, False),
        (HandoverPolicy.ON_START, True, False),
        (HandoverPolicy.ON_START, False, True),
    ):
        gone = Link(
            1, "a", 0, LinkState.ENDED, start=0, end=HOUR, limit=48 * HOUR, retired=HOUR, requeued=requeued
        )
        heir = Link(2, "b", HOUR, LinkState.RUNNING, start=HOUR, end=49 * HOUR, limit=48 * HOUR)
        record = ChainRecord(chain(handover=HandoverSettings(policy, SIGNAL)), (gone, heir))
        assert bool(let_run(record, HOUR + MIN)) is expected, policy


@pytest.mark.parametrize("crash_after", ["signal", "store"])
def test_a_crash_in_the_middle_still_ends_the_predecessor(crash_after: str) -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.ON_START, SIGNAL))
    save, signal = service.store.save, service.cluster.signal

    class Crash(BaseException):
        pass

    def dying_save(record: ChainRecord, *entries: Entry) -> None:
        told = any(link.is_retired and not link.final for link in record.links)
        if told and crash_after == "signal":
            raise Crash
        save(record, *entries)
        if told:
            raise Crash

    service.store.save = dying_save
    with pytest.raises(Crash):
        service.run(100 * HOUR, tick=MIN)
    service.store.save, service.cluster.signal = save, signal
    service.crash()
    record = service.run(300 * HOUR, tick=MIN)
    assert overlaps(record)[0] <= 11 * MIN
    assert 1 <= len([s for s in service.cluster.signals if s[0] == 100]) <= 2
    assert record.reason == "3 links have run"


@pytest.mark.parametrize(
    ("warn", "reach"),
    [
        (None, SignalReach.ALL),
        (WarnSignal("USR1", HOUR), SignalReach.STEPS),
        (WarnSignal("USR1", HOUR, batch_only=True), SignalReach.BATCH),
    ],
)
def test_who_is_warned_of_the_limit_is_told_to_make_way(warn: WarnSignal | None, reach: SignalReach) -> None:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR, obeys=0))
    way = replace(SIGNAL, batch_only=warn is not None and warn.batch_only)
    asked = chain(done=FOREVER, handover=HandoverSettings(HandoverPolicy.ON_START, way))
    service = Service(cluster, "fixed:3h", chain_=replace(asked, request=replace(asked.request, warn=warn)))
    signal, seen = cluster.signal, []

    def noted(job_id: JobId, owner: str, name: str, *, reach: SignalReach) -> None:
        seen.append((name, reach))
        signal(job_id, owner, name, reach=reach)

    cluster.signal = noted
    service.run(300 * HOUR, tick=MIN)
    assert seen == [("USR1", reach)] * 2


class Died(BaseException):
    """The daemon is killed."""


@pytest.mark.parametrize("error", [Died("killed"), ClusterUnavailable("no answer")])
def test_a_link_that_obeys_a_signal_of_unknown_fate_has_not_finished_the_work(error: BaseException) -> None:
    service = overlapping(HandoverSettings(HandoverPolicy.ON_START, SIGNAL), obeys=0)
    signal = service.cluster.signal

    def dying_signal(job_id: JobId, owner: str, name: str, *, reach: SignalReach) -> None:
        signal(job_id, owner, name, reach=reach)
        service.cluster.signal = signal
        raise error

    service.cluster.signal = dying_signal
    if isinstance(error, Died):
        with pytest.raises(Died):
            service.run(100 * HOUR, tick=MIN)
        service.crash()
        service.cluster.advance(service.cluster.time + MIN)
    record = service.run(300 * HOUR, tick=MIN)
    assert [link.job_state for link in record.links] == [JobState.COMPLETED] * 2 + [JobState.TIMEOUT]
    assert record.reason == "3 links have run"


def test_a_link_that_certainly_was_not_told_finishes_the_work_by_itself() -> None:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR, runtime=47 * HOUR))
    kind = chain(done=DoneCondition(links=3), handover=HandoverSettings(HandoverPolicy.ON_START, SIGNAL))
    service = Service(cluster, "fixed:3h", chain_=kind)

    def forbidden(job_id: JobId, owner: str, name: str, *, reach: SignalReach) -> None:
        raise NotPermitted(f"nobody can act for {owner}")

    service.cluster.signal = forbidden
    record = service.run(300 * HOUR, tick=MIN)
    assert record.reason == "link 1 ended with exit code 0"
    assert record.links[1].started, "its successor ran next to it, and would have signalled it to exit"


def test_a_requeued_link_that_was_overtaken_is_given_up() -> None:
    service = overlapping(HandoverSettings(), wait=4 * HOUR)
    service.run(50 * HOUR, tick=MIN)
    assert [link.state for link in service.record.links] == [LinkState.RUNNING, LinkState.PENDING]
    service.cluster.requeue(100, wait=20 * HOUR)
    service.cycle(50 * HOUR + MIN)
    service.cycle(50 * HOUR + 2 * MIN)
    first, second = service.record.links
    assert (first.state, first.end, end_name(first)) == (LinkState.ENDED, 50 * HOUR, "REQUEUED")
    assert service.cluster.jobs[100].state is JobState.CANCELLED
    assert second.waiting
    assert service.record.status is ChainStatus.ACTIVE, "giving it up is no failure"


def test_a_requeued_link_without_a_successor_is_the_next_link() -> None:
    service = overlapping(HandoverSettings())
    service.run(10 * HOUR)
    service.cluster.requeue(100, wait=5 * HOUR)
    service.run(14 * HOUR)
    first, second = service.record.links
    assert (first.state, first.start, first.end) == (LinkState.ENDED, HOUR, 10 * HOUR)
    assert (second.waiting, second.job_id, second.submit) == (True, first.job_id, 10 * HOUR)
    service.run(16 * HOUR)
    assert [link.state for link in service.record.links] == [LinkState.ENDED, LinkState.RUNNING]
    assert service.record.outcomes()[0].interruption == 5 * HOUR


@pytest.mark.parametrize("steering", [Steering.OFF, Steering.HOLD, Steering.PIN])
@pytest.mark.parametrize("looks_every", [MIN, HOUR])
def test_a_chain_that_requeues_itself_reaches_its_links(steering: Steering, looks_every: int) -> None:
    """Each job requeues itself near its limit, and would do so indefinitely."""
    kind = chain(limit=10 * HOUR, done=DoneCondition(exit_code=None, links=4), steering=steering, lead=0)
    service = Service(FakeCluster(lambda request: Fate(wait=1)), "reactive", chain_=kind)
    cluster, most = service.cluster, 0
    for now in range(0, 200 * HOUR, looks_every):
        cluster.advance(now)
        for job in cluster.live():
            if job.state is JobState.RUNNING and now >= job.start + 9 * HOUR + MIN:
                cluster.requeue(job.job_id, wait=2 * MIN)
        most = max(most, sum(job.state is JobState.RUNNING for job in cluster.live()))
        service.loop.cycle()
        if service.record.over:
            break
    record = service.record
    ran = [link for link in record.links if link.started]
    assert (record.status, len(ran), len(record.outcomes())) == (ChainStatus.DONE, 4, 3)
    assert all(link.end - link.start >= 9 * HOUR for link in ran)
    assert record.failures == 0
    if looks_every < 2 * MIN:
        assert most == 1, "never two writers"
    service.loop.cycle()
    service.loop.cycle()
    assert not cluster.live(), "the job that was requeued last is cancelled"
