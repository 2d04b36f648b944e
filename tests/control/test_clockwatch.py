"""A daemon whose clock differs from Slurm's: what snapshots show of it, and where it is reported."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.control.clockcheck import latest_event
from mirage.domain.chain import DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.job import Job, JobId, JobState
from mirage.domain.journal import EntryKind


@dataclass
class Off:
    """A clock that differs from the cluster's."""

    cluster: FakeCluster
    by: int

    def now(self) -> int:
        return self.cluster.now() + self.by


class Skewed(Service):
    """A loop whose clock is ``by`` seconds ahead of its cluster's."""

    def __init__(self, by: int, **more: object) -> None:
        self.by = by
        both = HandoverSettings(HandoverPolicy.OVERLAP)
        asked = chain(done=DoneCondition(links=9), handover=both)
        cluster = FakeCluster(lambda request: Fate(wait=10 * MIN), time=100 * HOUR)
        self.clock = Off(cluster, by)
        super().__init__(cluster, "fixed:1h", chain_=asked, **more)

    def cycles(self, *minutes: int) -> list[str]:
        return [self.cycle(100 * HOUR + minute * MIN) for minute in minutes]

    @property
    def said(self) -> list[tuple[EntryKind, str]]:
        return [(e.kind, e.text) for e in self.journal.entries if e.chain is None]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (2 * HOUR, "at least 2 h ahead of"),
        (-2 * HOUR - 10 * MIN, "at least 2 h behind"),
        (11 * MIN, "at least 10 min ahead of"),
    ],
)
def test_clock_that_is_off_is_said_once_and_by_each_chain(by: int, words: str) -> None:
    service = Skewed(by)
    sentences = service.cycles(*range(30))
    assert all(f"this machine's clock is {words} Slurm's, so links come " in each for each in sentences[1:])
    (explained,) = service.loop.status.explained.values()
    assert words in explained
    ((kind, text),) = service.said
    assert (kind, words in text) == (EntryKind.TROUBLE, True)


@pytest.mark.parametrize("by", [0, 59, -59])
def test_clock_that_is_right_or_nearly_is_not_mentioned(by: int) -> None:
    service = Skewed(by)
    service.run(300 * HOUR)
    assert len(service.record.links) > 3
    assert service.said == []
    assert "clock" not in str(service.loop.status.explained)


@pytest.mark.parametrize("minute", [3, 200])
@pytest.mark.parametrize("by", [2 * HOUR, -2 * HOUR])
def test_clock_that_was_set_right_is_said_once(by: int, minute: int) -> None:
    service = Skewed(by)
    service.cycles(*range(minute))
    service.clock.by = service.by = 0
    if minute == 3:
        service.crash()
    later = service.cycles(*range(minute, minute + 300, 3))
    assert "clock" not in later[-1]
    kinds = [kind for kind, _ in service.said]
    if minute == 3:
        assert kinds == [], "a daemon that was started afterwards"
    else:
        assert (kinds[0], kinds.index(EntryKind.EVENT)) == (EntryKind.TROUBLE, len(kinds) - 1)
        assert len(kinds) <= 4


def test_link_that_was_sent_again_proves_nothing() -> None:
    """Its first job may have come late: Slurm received it before it was sent again."""
    service = Skewed(0, settle=5 * MIN)
    service.cluster.lose_answer = True
    service.cycles(0)
    (job,) = service.cluster.jobs.values()
    hidden = service.cluster.jobs.pop(job.job_id)
    service.cycles(*range(1, 10))
    assert service.record.resent == 1
    service.cluster.jobs = {hidden.job_id: hidden}
    service.cycles(11, 12)
    assert service.said == []


def test_held_links_of_the_owner_prove_no_clock_ahead() -> None:
    """They were submitted long before the daemon releases them."""
    service = Skewed(2 * HOUR)
    snapshot = service.cluster.snapshot
    service.cluster.snapshot = lambda **asked: replace(snapshot(**asked), stock=())
    service.cycles(0, 1, 2)
    assert service.said == []


def test_plan_of_a_pending_job_is_no_event() -> None:
    cluster = FakeCluster()
    planned = Job(JobId(1), "a", "u", "cpu", 1, HOUR, JobState.PENDING, 5, 900_000, 990_000, tag="t")
    assert latest_event(replace(cluster.snapshot(), links={"t": planned})) == 5
