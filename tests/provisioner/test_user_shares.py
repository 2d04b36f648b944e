"""Shares of users: one user's chains never stop another's, whatever their number and rate."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import Chain, ChainRecord, DoneCondition
from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits, OwnerShares, Usage, in_turn, permit, shares
from mirage.provisioner.tally import Tally

FOREVER = DoneCondition(exit_code=None)


def owned(owner: str, name: str, limit: int = 48 * HOUR) -> Chain:
    return replace(chain(limit, FOREVER, name=name), owner=owner)


def running(of: Chain, links: int = 1, planned: int = 0) -> ChainRecord:
    record = ChainRecord(of)
    for index in range(1, links + 1):
        state = LinkState.RUNNING if index == links else LinkState.ENDED
        from_ = planned + index - 1
        link = Link(index, of.tag(index), from_, state, JobId(index), start=from_, end=from_ + 1)
        record = record.with_link(link)
    return record


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(10, 200),
    greedy_owners=st.integers(1, 4),
    modest=st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_total_never_defers_a_modest_owner(total: int, greedy_owners: int, modest: list[int]) -> None:
    """Greedy owners ask each minute for all they can get; the others stay within their fair share an hour."""
    limits = Limits(submissions_per_hour=total, submissions_per_hour_per_user=0)
    owners = [f"greedy{k}" for k in range(greedy_owners)] + [f"modest{k}" for k in range(len(modest))]
    share = max(1, total // (2 * len(owners)))
    sent: dict[str, deque[int]] = {owner: deque() for owner in owners}
    deferred = []

    def ask(owner: str, minute: int) -> bool:
        for times in sent.values():
            while times and times[0] <= minute - 60:
                times.popleft()
        used = OwnerShares(owners=len(owners), submissions=len(sent[owner]))
        usage = Usage(0, sum(map(len, sent.values())), 0, 0, shares=used)
        granted = permit(minute, usage, limits).granted
        sent[owner] += [minute] * granted
        return granted

    for minute in range(180):
        for owner in owners[:greedy_owners]:
            while ask(owner, minute):
                pass
        for owner, wanted in zip(owners[greedy_owners:], modest, strict=True):
            if minute % 60 < min(wanted, share) and not ask(owner, minute):
                deferred.append((owner, minute))
        assert sum(map(len, sent.values())) <= total + share * len(owners)
    assert deferred == []


class Site:
    """A loop over the chains of several users."""

    def __init__(self, cluster: FakeCluster, limits: Limits, *chains: Chain) -> None:
        self.cluster, self.store = cluster, MemoryStore(*(ChainRecord(each) for each in chains))
        journal = self.store.journal = MemoryJournal()
        outside = LoopDependencies(*[cluster] * 5, self.store, journal, cluster)
        reactive = PredictorGuard(build_predictor("reactive"), build_predictor("reactive"))
        self.loop = ControlLoop(outside, Guards(reactive), LoopSettings(limits=limits))

    def run(self, until: int, tick: int = MIN) -> None:
        for time in range(self.cluster.time, until, tick):
            self.cluster.advance(time)
            self.loop.cycle()

    def submitted(self, owner: str) -> int:
        return sum(request.user == owner for request in self.cluster.submissions)


@pytest.mark.parametrize("limits", [Limits(), Limits(submissions_per_hour=60, submissions_per_hour_per_user=0)])
def test_short_links_of_one_user_stop_no_other(limits: Limits) -> None:
    """Seventy chains of one-minute links, and then a user with links of two hours."""
    many = [owned("mallory", f"evil{k}", 60) for k in range(70)]
    site = Site(FakeCluster(lambda request: Fate(runtime=request.limit)), limits, *many)
    site.run(30 * MIN)
    assert site.submitted("mallory") >= 30
    site.store.save(ChainRecord(owned("bob", "work", 2 * HOUR)))
    site.run(12 * HOUR)
    (bob,) = [record for record in site.store.load() if record.chain.owner == "bob"]
    assert all(outcome.interruption <= 2 * MIN for outcome in bob.outcomes())
    assert len(bob.links) >= 5


def test_first_links_leave_room_for_handovers() -> None:
    """A user who adds sixty chains together does not stop the handovers of the chains that were there."""
    site = Site(FakeCluster(lambda request: Fate(runtime=request.limit)), Limits(), owned("bob", "old", 10 * MIN))
    site.run(5 * MIN)
    for k in range(100):
        site.store.save(ChainRecord(owned("bob", f"new{k}")))
    site.run(65 * MIN)
    old = next(record for record in site.store.load() if record.chain.name == "old")
    assert len(old.links) >= 6
    assert all(outcome.interruption <= 2 * MIN for outcome in old.outcomes())


def test_turns_handovers_come_first_then_owners_with_few_chains() -> None:
    records = [ChainRecord(owned("a", f"a{k}")) for k in range(3)]
    records += [ChainRecord(owned("b", "b0")), running(owned("c", "c0")), running(owned("a", "a9"))]
    names = [record.chain.name for record in in_turn(records)]
    assert names == ["c0", "a9", "b0", "a0", "a1", "a2"]
    slow = [record.chain.name for record in in_turn(records, {"b": 1.0})]
    assert slow == ["c0", "a9", "a0", "a1", "a2", "b0"]


def test_places_on_the_cluster_are_shared() -> None:
    """Of eight places bob, who has one chain, gets two; mallory's hundred chains leave them free."""
    limits = Limits(live_links=8)
    records = [running(owned("mallory", f"evil{k}")) for k in range(6)]
    waiting, bob = ChainRecord(owned("mallory", "evil9")), ChainRecord(owned("bob", "work"))
    records += [waiting, bob]

    def granted(record: ChainRecord) -> bool:
        usage = Usage(6, 0, 0, 0, shares=shares(Tally.of(records, 0), record, limits))
        return permit(0, usage, limits).granted

    assert granted(bob)
    assert not granted(waiting)


def test_rejections_count_as_retries_not_submissions() -> None:
    limits = Limits(submissions_per_hour_per_user=10)
    rejected = [replace(ChainRecord(owned("a", f"a{k}")), refusals=5, refused=100) for k in range(2)]
    tally = Tally.of([*rejected, good := ChainRecord(owned("a", "good"))], 200)
    found = shares(tally, rejected[0], limits)
    assert (found.submissions, found.retries) == (0, 10)
    assert not permit(200, Usage(0, 0, 0, 0, shares=found), limits).granted
    fresh = shares(tally, good, limits)
    assert permit(200, Usage(0, 0, 0, 0, shares=fresh), limits).granted
