"""The loop over a scripted cluster: when links are submitted, and how failures affect a chain."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service, waiting

from mirage.control.clocks import SimulatedTicks
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.prediction_requests import PredictionRequest
from mirage.domain.chain import (
    ChainRecord,
    ChainStatus,
    DoneCondition,
    HandoverPolicy,
    HandoverSettings,
    Steering,
)
from mirage.domain.decision import WaitForecast, Wants
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.job import ABSENT, JobRequest, JobState
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import LinkState
from mirage.domain.objective import Objective, ObjectiveKind
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits


@pytest.mark.parametrize(
    ("predictor", "x"),
    [("reactive", 5 * HOUR), ("fixed:5h", 0), ("fixed:6h", -HOUR), ("fixed:90m", 3.5 * HOUR), ("average", HOUR)],
)
def test_the_wait_less_the_lead_is_the_gap(predictor: str, x: int) -> None:
    cluster = waiting(5)
    cluster.waits = [3 * HOUR, 5 * HOUR]
    both = chain(done=DoneCondition(links=2), handover=HandoverSettings(HandoverPolicy.OVERLAP))
    record = Service(cluster, predictor, chain_=both).run(500 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [o.x for o in record.outcomes()] == [x]


def test_reactive_submits_at_the_very_end_also_off_the_grid() -> None:
    service = Service(waiting(1.23))
    record = service.run(500 * HOUR, tick=7 * MIN)
    assert record.links[1].submit == record.links[0].end
    assert record.links[1].reason == "the predecessor has ended"


def test_every_pair_of_a_longer_chain_is_handed_over() -> None:
    record = Service(waiting(2), "fixed:2h", links=4).run(500 * HOUR)
    assert [o.x for o in record.outcomes()] == [0, 0, 0]
    assert len(record.links) == 4


def test_the_journal_tells_the_story() -> None:
    service = Service(waiting(2), "fixed:1h")
    service.run(500 * HOUR)
    assert service.journal.texts(EntryKind.OUTCOME) == (f"interruption {HOUR} s, overlap 0 s",)
    events = service.journal.texts(EntryKind.EVENT)
    assert "link 1 is pending" in events
    assert "link 1 started at 1970-01-01T02:00:00Z, its time limit ends it at 1970-01-03T02:00:00Z" in events
    assert "link 1 ended at 1970-01-03T02:00:00Z: TIMEOUT, exit code 0" in events


def test_skipping_idle_cycles_changes_nothing() -> None:
    def outcome(skip: bool) -> list[tuple[int, int, int]]:
        service = Service(waiting(7.77), "fixed:3h", links=3)
        ticks = SimulatedTicks(service.cluster, 10 * MIN, 500 * HOUR)
        cycle = service.loop.cycle()
        while ticks.wait(cycle.wake, cycle.deciding or not skip):
            cycle = service.loop.cycle()
        return [(link.submit, link.start, link.end) for link in service.record.links]

    assert outcome(skip=True) == outcome(skip=False)


def test_each_cycle_says_why() -> None:
    service = Service(waiting(2), "fixed:2h")
    assert service.cycle() == "submitted link 1 as job 100: no link of the chain is on the cluster"
    assert service.cycle(HOUR) == "link 1 is pending"
    assert service.cycle(2 * HOUR) == "hold: it submits 02:00:00 before the predecessor's end, which is in 48.0 h"
    assert "submitted link 2 as job 101: it submits 02:00:00 before" in service.cycle(48 * HOUR)


def test_a_silent_controller_is_not_an_empty_queue() -> None:
    service = Service(waiting(0))
    service.cycle()
    service.cycle(HOUR)
    service.cluster.down = True
    assert service.cycle(60 * HOUR).startswith("hold: the cluster has not answered since")
    assert service.cycle(61 * HOUR).startswith("hold: the cluster has not answered since 1970-01-01T01:00:00Z")
    assert len(service.cluster.submissions) == 1
    service.cluster.down = False
    service.cycle(62 * HOUR)
    assert len(service.cluster.submissions) == 2


def test_an_unreachable_controller_at_start_up_holds() -> None:
    service = Service(FakeCluster(down=True))
    assert service.loop.status.stale_since == ABSENT, "it has not been asked yet"
    assert service.cycle().startswith("hold")
    assert service.loop.status.stale_since == 0
    assert not service.record.links


def test_loop_that_stands_by_says_why_and_blames_no_cluster() -> None:
    service = Service(waiting(0))
    sentence = "stands by: the lease cannot be written: the disk is full"
    service.loop.stand_by(sentence)
    status = service.loop.status
    assert (status.stale_since, status.cycles) == (ABSENT, 0)
    assert status.explained == {service.record.chain.chain_id: sentence}
    with pytest.raises(ClusterUnavailable, match="has not polled the cluster: stands by: the lease cannot be"):
        service.loop.foresee(PredictionRequest(JobRequest("s", "alice", HOUR)), lambda: None)
    service.cycle()
    assert (service.loop.status.stale_since, service.loop.status.cycles) == (ABSENT, 1)


@pytest.mark.parametrize("fault", ["lose_answer", "lose_question"])
def test_a_lost_submission_is_found_or_sent_again(fault: str) -> None:
    service = Service(waiting(10))
    setattr(service.cluster, fault, True)
    assert "may not have reached" in service.cycle()
    if fault == "lose_question":
        assert "connection refused" in service.cycle(1), "Slurm's message is shown until it is sent again"
    for minute in range(1, 10):
        service.cycle(minute * MIN)
    assert [request.tag for request in service.cluster.submissions] == ["mirage:svc:1"]
    assert service.record.links[0].state is LinkState.PENDING


def test_a_lost_submission_is_sent_again_although_the_daemon_never_lives_as_long_as_it_settles() -> None:
    service = Service(waiting(10), settle=2 * MIN)
    service.cluster.lose_question = True
    service.cycle()
    for second in range(10, 300, 10):
        service.crash()
        service.cycle(second)
        sent_again = len(service.cluster.submissions)
        assert sent_again == (second >= 10 + 2 * MIN), f"after {second} s"
    assert service.record.links[0].state is LinkState.PENDING


def test_a_break_in_what_the_cluster_answers_lets_a_lost_submission_settle_anew() -> None:
    """The controller that was away may still have to answer the query."""
    service = Service(waiting(10), settle=2 * MIN)
    service.cluster.lose_question = True
    service.cycle()
    service.cycle(MIN)
    service.cluster.down = True
    service.cycle(2 * MIN)
    service.cluster.down = False
    for minute, submissions in ((5, 0), (6, 0), (7, 1)):
        service.cycle(minute * MIN)
        assert len(service.cluster.submissions) == submissions, f"after {minute} min"


@pytest.mark.parametrize(
    ("rejection", "at_once"), [("QOSMaxSubmitJobPerUserLimit", True), ("PartitionInvalid", False)]
)
def test_what_a_limit_kept_back_is_tried_once_the_predecessor_has_ended(rejection: str, at_once: bool) -> None:
    """One job at a time is all that the user may have: until the first is gone the second is rejected."""
    endless = chain(2 * HOUR, DoneCondition(links=9), steering=Steering.HOLD)
    service = Service(waiting(0), chain_=endless, limits=Limits(pause_after_refusals=99))
    service.cycle(0)
    service.cluster.refuse = rejection
    for time in range(3 * MIN, 2 * HOUR - MIN, MIN):
        service.cycle(time)
    assert service.record.not_before > 2 * HOUR + MIN, "it waits for its next try"
    service.cluster.refuse = ""
    service.cycle(2 * HOUR + MIN)
    assert (len(service.cluster.submissions) == 2) is at_once


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("dies", ["before submit", "after submit"])
@pytest.mark.parametrize("link", [1, 2])
def test_a_crash_around_a_submission_leaves_exactly_one_successor(dies: str, link: int) -> None:
    service = Service(waiting(1))
    submit = service.cluster.submit

    def dying(request):
        if request.tag == f"mirage:svc:{link}":
            if dies == "after submit":
                submit(request)
            service.cluster.submit = submit
            raise Crash
        return submit(request)

    service.cluster.submit = dying
    with pytest.raises(Crash):
        service.run(60 * HOUR)
    assert service.record.links[-1].state is LinkState.PLANNED
    service.crash()
    record = service.run(500 * HOUR)
    assert [request.tag for request in service.cluster.submissions] == ["mirage:svc:1", "mirage:svc:2"]
    assert record.status is ChainStatus.DONE


def test_what_is_stored_of_a_link_is_told_with_it() -> None:
    """The entries go to disk with the record, or were there before: a process that dies never loses them."""
    service = Service(waiting(1))
    save, told = service.store.save, []

    def watched(record: ChainRecord, *entries: Entry) -> None:
        before = service.journal.texts(EntryKind.EVENT) + service.journal.texts(EntryKind.ACTION)
        texts = [*before, *(entry.text for entry in entries)]
        told.append([any(f"link {ln.index} ended" in text for text in texts) for ln in record.links if ln.final])
        told.append([any(f"as job {ln.job_id}" in text for text in texts) for ln in record.links if ln.job_id])
        save(record, *entries)

    service.store.save = watched
    service.run(500 * HOUR)
    assert [True, True] in told
    assert all(all(each) for each in told)


@pytest.mark.parametrize("chosen", [{}, {"steering": Steering.NICE}])
def test_a_forecast_beyond_the_limit_has_two_links_run_at_once_and_no_more(chosen) -> None:
    """An idle cluster, and a predictor that thinks every wait longer than a link."""
    cluster = FakeCluster()
    cluster.update = lambda *_: None  # a nice value does not delay it where a node is idle
    service = Service(cluster, "fixed:60h", chain_=chain(done=DoneCondition(links=5), **chosen))
    together = []
    ticks = SimulatedTicks(cluster, MIN, 500 * HOUR)
    cycle = service.loop.cycle()
    while ticks.wait(cycle.wake, deciding=True) and not service.record.over:
        cycle = service.loop.cycle()
        for job in cluster.live():
            cluster.jobs[job.job_id] = replace(job, nice=0)
        cluster.advance(cluster.time)
        together.append(len(cluster.live()))
    assert service.record.status is ChainStatus.DONE
    assert max(together) == 2


def test_jobs_of_a_lost_store_are_adopted() -> None:
    service = Service(waiting(1), "fixed:1h")
    service.run(48 * HOUR)
    assert len(service.cluster.submissions) == 2
    service.store.save(ChainRecord(service.record.chain))
    service.crash()
    service.cycle()
    assert len(service.cluster.submissions) == 2
    assert [link.state for link in service.record.links] == [LinkState.RUNNING, LinkState.PENDING]


def test_rejections_that_pass_are_retried_until_accepted() -> None:
    service = Service(FakeCluster(refuse="AssocMaxSubmitJobLimit"), limits=Limits(pause_after_refusals=3))
    service.run(5 * HOUR, tick=MIN)
    assert service.record.status is ChainStatus.ACTIVE
    tries = [e.time for e in service.journal.entries if e.kind is EntryKind.TROUBLE]
    assert [b - a for a, b in itertools.pairwise(tries)][:4] == [300, 600, 900, 900]
    held = {e.text for e in service.journal.entries if e.kind is EntryKind.DECISION}
    assert len(held) <= len(tries) + 1, "nothing new is reported between two tries"
    assert "AssocMaxSubmitJobLimit" in service.loop.status.explained[service.record.chain.chain_id]
    service.cluster.refuse = ""
    service.run(6 * HOUR, tick=MIN)
    assert [link.submit <= 5 * HOUR + 15 * MIN for link in service.record.links] == [True]


def test_permanent_rejection_pauses_a_chain_at_once() -> None:
    service = Service(FakeCluster(refuse="PartitionInvalid"))
    service.run(24 * HOUR, tick=MIN)
    assert service.record.status is ChainStatus.PAUSED
    assert "PartitionInvalid" in service.record.reason
    entries = [e for e in service.journal.entries if "PartitionInvalid" in e.text]
    assert len(entries) == 2, "the rejection, and once that the chain is paused"


def test_the_limit_on_submissions_holds() -> None:
    service = Service(
        FakeCluster(lambda r: Fate(runtime=2 * MIN)), links=100, limits=Limits(submissions_per_hour_per_user=5)
    )
    service.store.save(ChainRecord(chain(done=DoneCondition(exit_code=None))))
    service.run(10 * HOUR - 1, tick=MIN)
    submitted = [link.submit for link in service.record.links]
    assert len(submitted) == 50
    assert all(b - a >= HOUR for a, b in zip(submitted, submitted[5:], strict=False))


class Broken:
    name = "broken"
    wants = Wants()

    def predict(self, observation):
        raise RuntimeError("no weights")


def test_a_broken_predictor_is_answered_for() -> None:
    service = Service(waiting(1))
    outside = LoopDependencies(*[service.cluster] * 5, service.store, service.journal, service.cluster)
    service.loop = ControlLoop(
        outside, Guards(PredictorGuard(Broken(), build_predictor("reactive"))), LoopSettings()
    )
    service.cycle(2 * HOUR)
    service.cycle(4 * HOUR)
    assert "broken: no prediction: no weights; fell back to reactive" in service.cycle(5 * HOUR)
    record = service.run(500 * HOUR)
    assert [o.x for o in record.outcomes()] == [HOUR]
    assert "no prediction: no weights; fell back to reactive" in service.journal.texts(EntryKind.TROUBLE)


class Foreseeing:
    """Knows that a start comes two to ten hours after the submission, each time being as likely."""

    name = "foreseeing"
    wants = Wants()

    def predict(self, observation):
        return WaitForecast((0.0, 1.0), (observation.time + 2 * HOUR, observation.time + 10 * HOUR))


@pytest.mark.parametrize(
    ("wanted", "lead"),
    [
        ({}, 6),
        ({"aim": Objective(ObjectiveKind.NO_INTERRUPTION, 0.75)}, 8),
        ({"aim": Objective(ObjectiveKind.OVERLAP, HOUR)}, 6),
        ({"aim": Objective(ObjectiveKind.OVERLAP, HOUR / 4)}, 4),
        ({"handover": HandoverSettings(HandoverPolicy.ON_START)}, 8.4),
    ],
)
def test_each_chain_has_its_own_aim(wanted, lead: float) -> None:
    """Of a lead l between 2 and 10 h the expected overlap is (l - 2)^2 / 16."""
    service = Service(waiting(1), chain_=chain(done=DoneCondition(links=2), **wanted))
    service.loop.reconfigure(Guards(PredictorGuard(Foreseeing(), build_predictor("reactive"))), LoopSettings())
    record = service.run(500 * HOUR)
    first, second = record.links
    assert (49 * HOUR - second.submit) / HOUR == pytest.approx(lead, abs=0.2)
    assert second.index == first.index + 1


def test_slurms_plan_is_asked_for_only_where_wanted() -> None:
    service = Service(waiting(4), "slurm")
    service.cluster.plan = 47 * HOUR
    record = service.run(500 * HOUR)
    assert record.status is ChainStatus.DONE
    assert record.links[1].submit == 52 * HOUR, "a plan before the end never submits; the end does"
    service = Service(waiting(4), "slurm")
    assert service.run(500 * HOUR).status is ChainStatus.DONE
    assert "Slurm plans no start" in service.journal.texts(EntryKind.TROUBLE)[0]


def test_the_chain_ends_with_its_owner() -> None:
    service = Service(waiting(1), "fixed:2h")
    service.run(48 * HOUR)
    for job in service.cluster.live():
        service.cluster.cancel(job.job_id, job.user)
    service.cycle(48 * HOUR + MIN)
    assert service.record.status is ChainStatus.STOPPED
    assert all(job.state is JobState.CANCELLED for job in service.cluster.jobs.values())


def test_a_last_link_that_fails_is_the_last_all_the_same() -> None:
    cluster = FakeCluster(lambda request: Fate(runtime=HOUR, state=JobState.FAILED, exit_code=3))
    service = Service(cluster, chain_=chain(done=DoneCondition(links=2)))
    record = service.run(500 * HOUR)
    assert record.status is ChainStatus.DONE
    assert record.reason == "2 links have run, 2 of them failed"


def test_a_stranger_who_copies_a_tag_changes_nothing() -> None:
    cluster = waiting(1)
    copied = replace(chain().request, user="mallory", tag="mirage:svc:1")
    cluster.submit(copied)
    service = Service(cluster, "fixed:1h")
    record = service.run(500 * HOUR)
    ours = [request.tag for request in cluster.submissions if request.user == "alice"]
    assert ours == ["mirage:svc:1", "mirage:svc:2"]
    assert record.status is ChainStatus.DONE
    assert all(cluster.jobs[link.job_id].user == "alice" for link in record.links)


def test_a_link_whose_end_nobody_can_tell_keeps_its_own_chain_waiting_only() -> None:
    service = Service(waiting(0))
    service.cycle()
    service.cycle(MIN)
    service.cluster.unaccounted.add("mirage:svc:1")
    assert "its end is unknown" in service.cycle(50 * HOUR)
    assert len(service.cluster.submissions) == 1
    assert service.record.links[0].running
    service.cluster.unaccounted.clear()
    service.cycle(51 * HOUR)
    assert [request.tag for request in service.cluster.submissions] == ["mirage:svc:1", "mirage:svc:2"]
