"""A clock that was ahead and is right again: no chain waits for the times that it showed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import ChainRecord, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.errors import NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT, JobState, WarnSignal
from mirage.domain.link import LinkState
from mirage.provisioner.limits import Limits
from mirage.provisioner.rejections import corrected

DAYS_AHEAD = 19 * 24 * HOUR
START = 100 * HOUR


class Set(Service):
    """A loop whose clock is ``ahead`` of its cluster's until it is corrected."""

    def __init__(self, cluster: FakeCluster, **more: object) -> None:
        self.ahead, self.clock = DAYS_AHEAD, self
        super().__init__(cluster, **more)

    def now(self) -> int:
        return self.cluster.now() + self.ahead

    def set_right(self, *, restarted: bool) -> None:
        self.ahead = 0
        if restarted:
            self.crash()


def cluster(**fate: int) -> FakeCluster:
    return FakeCluster(lambda request: Fate(wait=MIN, **fate), time=START)


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize(
    ("trouble", "patience"),
    [(NotPermitted("no agent"), 5 * MIN), (SubmissionRejected("QOSMaxJobs"), 15 * MIN)],
)
def test_submission_that_failed_meanwhile_is_tried_again(
    trouble: Exception, patience: int, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Set(cluster())
    with monkeypatch.context() as broken:
        broken.setattr(service.cluster, "submit", lambda request: (_ for _ in ()).throw(trouble))
        service.cycle()
    assert service.record.not_before >= START + DAYS_AHEAD
    service.set_right(restarted=restarted)
    service.cycle(START + MIN)
    service.cycle(START + MIN + patience)
    (job,) = service.cluster.jobs.values()
    assert service.record.links[0].job_id == job.job_id


def test_submission_that_was_lost_is_sent_again() -> None:
    service = Set(cluster(), settle=5 * MIN)
    service.cluster.lose_question = True
    service.cycle()
    assert service.record.links[0].state is LinkState.PLANNED
    service.set_right(restarted=True)
    for minute in range(1, 20):
        service.cycle(START + minute * MIN)
    assert len(service.cluster.jobs) == 1


def test_links_of_a_clock_ahead_use_up_no_hours_share() -> None:
    quick = cluster(runtime=3 * MIN)
    limits = Limits(submissions_per_hour_per_user=2)
    service = Set(quick, chain_=chain(done=DoneCondition(exit_code=None, links=6)), limits=limits)
    for minute in range(0, 20, 2):
        service.cycle(START + minute * MIN)
    assert len(service.record.links) == 2, "the share is used up"
    service.set_right(restarted=True)
    for minute in range(20, 100, 2):
        service.cycle(START + minute * MIN)
    assert len(service.record.links) >= 4


def test_predecessor_that_was_told_to_leave_is_ended_after_its_grace() -> None:
    both = HandoverSettings(HandoverPolicy.ON_START, WarnSignal("TERM", 2 * MIN))
    service = Set(cluster(), chain_=chain(3 * HOUR, DoneCondition(links=9), handover=both), predictor="fixed:1h")
    minute = 0
    while not any(link.is_retired for link in service.record.links) and minute < 400:
        service.cycle(START + minute * MIN)
        minute += 1
    first = service.record.links[0]
    assert first.retired > START + minute * MIN
    service.set_right(restarted=True)
    for later in range(minute, minute + 5):
        service.cycle(START + later * MIN)
    assert service.cluster.jobs[first.job_id].state is JobState.CANCELLED


def test_corrected_leaves_a_record_of_the_past_as_it_is() -> None:
    record = ChainRecord(chain(), not_before=START + 15 * MIN, refusals=4, refused=START, refused_since=START)
    assert corrected(record, START, Limits()) is record
    assert corrected(replace(record, not_before=START + 13 * HOUR), START, Limits()).not_before < START + 7 * HOUR
    assert corrected(record, ABSENT, Limits()).refused == ABSENT
