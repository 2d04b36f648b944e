"""The cost of a cycle as chains grow in number: counted calls, not seconds."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.control.commands import MOST_OF_ONE, CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.permits import Turns
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import Chain, ChainRecord, ChainStatus, DoneCondition
from mirage.domain.command import PauseChain
from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits, shares
from mirage.provisioner.rejections import protection
from mirage.provisioner.tally import Tally

ENDLESS = DoneCondition(exit_code=None)


def owned(owner: str, name: str) -> Chain:
    return replace(chain(10 * MIN, ENDLESS, name=name), owner=owner)


def loop_of(cluster: FakeCluster, records: list[ChainRecord], policy: LoopSettings | None = None):
    store, journal = MemoryStore(*records), MemoryJournal()
    store.journal = journal
    outside = LoopDependencies(*[cluster] * 5, store, journal, cluster)
    guard = PredictorGuard(build_predictor("reactive"), build_predictor("reactive"))
    return ControlLoop(outside, Guards(guard), policy or LoopSettings(limits=Limits(live_links=5))), journal


def calls(cluster: FakeCluster, loop: ControlLoop, time: int) -> int:
    """Python functions called in one cycle."""
    count = 0

    def counted(frame, event, argument) -> None:
        nonlocal count
        count += event == "call"

    cluster.advance(time)
    sys.setprofile(counted)
    try:
        loop.cycle()
    finally:
        sys.setprofile(None)
    return count


def rejected(name: str, number: int) -> ChainRecord:
    """Slurm accepted one link of this chain and rejects the next: it counts for protected mode."""
    of = owned("mallory", name)
    link = Link(1, of.tag(1), 0, LinkState.ENDED, JobId(number), start=1, end=2)
    return replace(ChainRecord(of, (link,)), refused=10 * MIN, refused_since=5 * MIN, refusals=1)


@pytest.mark.parametrize("kind", ["new", "rejected"])
def test_cycle_work_grows_in_step_with_the_chains(kind: str) -> None:
    """Each of them asks for a permit and gets none."""

    def work(count: int) -> int:
        cluster = FakeCluster(lambda request: Fate(runtime=request.limit))
        names = [f"evil{k}" for k in range(count)]
        records = [
            ChainRecord(owned("mallory", name)) if kind == "new" else rejected(name, k)
            for k, name in enumerate(names, start=1_000)
        ]
        loop, _ = loop_of(cluster, [*records, ChainRecord(owned("bob", "work"))])
        cluster.advance(HOUR)
        loop.cycle()
        return calls(cluster, loop, HOUR + MIN)

    assert work(400) < 2.5 * work(200)


class Watch:
    """A clock that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def attended(turns: Turns, watch: Watch, records: list[ChainRecord], seconds: float) -> list[str]:
    """The chains decided in a cycle in which each of mallory's takes this long, others' no time."""
    turns.begin_cycle()
    names = []
    for record, granted in turns.attend(records):
        if granted:
            names.append(record.chain.name)
            watch.now += seconds if record.chain.owner == "mallory" else 0.01
    return names


def test_turns_slow_owner_has_its_share_and_others_come_first() -> None:
    watch = Watch()
    turns = Turns(10.0, watch)
    evil = [ChainRecord(owned("mallory", f"evil{k}")) for k in range(20)]
    good = [ChainRecord(owned(f"user{k}", f"good{k}")) for k in range(4)]
    first = attended(turns, watch, [*evil, *good], 1.0)
    assert first[:4] == ["good0", "good1", "good2", "good3"]
    assert len(first) == 4 + 10
    assert max(turns.decided[f"user{k}"] for k in range(4)) < 0.1
    second = attended(turns, watch, [*evil, *good], 1.0)
    assert sorted(first[4:] + second[4:]) == sorted(record.chain.name for record in evil), "each had its turn"


def test_turns_busy_owners_share_the_time_equally() -> None:
    watch = Watch()
    turns = Turns(10.0, watch)
    records = [ChainRecord(owned(owner, f"{owner}{k}")) for owner in ("ada", "bob") for k in range(20)]
    turns.begin_cycle()
    taken = {"ada": 0, "bob": 0}
    for record, granted in turns.attend(records):
        taken[record.chain.owner] += granted
        watch.now += 1.0 if granted else 0.0
    assert taken == {"ada": 5, "bob": 5}


def test_turns_one_chain_of_each_owner_is_always_decided() -> None:
    watch = Watch()
    turns = Turns(1.0, watch)
    records = [ChainRecord(owned(owner, f"{owner}{k}")) for owner in ("mallory", "mallory2") for k in range(3)]
    for _ in range(3):
        names = attended(turns, watch, records, 100.0)
        assert {name[:-1] for name in names} == {"mallory", "mallory2"}


def test_loop_chain_left_out_says_so_once_and_is_decided_later() -> None:
    cluster = FakeCluster(lambda request: Fate(runtime=request.limit))
    records = [ChainRecord(owned("mallory", f"evil{k}")) for k in range(3)]
    limits = Limits(live_links=1)
    loop, journal = loop_of(cluster, records, LoopSettings(limits=limits, decision_seconds=1e-9))
    said = set()
    for minute in range(30):
        cluster.advance(minute)
        loop.cycle()
        assert set(loop.status.explained) == {record.chain.chain_id for record in records}
        said |= {name for name, text in loop.status.explained.items() if "later cycle" not in text}
    assert len(said) == 3
    texts = [(entry.chain, entry.text) for entry in journal.entries if entry.prediction is None]
    assert len(texts) == len(set(texts)), "an earlier report is not repeated"


def test_queue_one_user_floods_others_commands_are_taken_at_once() -> None:
    queue = CommandQueue()
    for k in range(50):
        queue.put(PauseChain(chain(name=f"evil{k}").chain_id, "mallory"))
    queue.put(PauseChain(chain(name="work").chain_id, "bob"))
    taken = queue.take()
    assert [asked.command.by for asked in taken] == ["mallory", "bob"]
    taken += queue.take_more()
    assert len(taken) == MOST_OF_ONE + 1
    assert queue.wait(0.0), "the next cycle comes for the others"
    order = [asked.command for asked in taken if asked.command.by == "mallory"]
    while taken := queue.take() + queue.take_more():
        order += [asked.command for asked in taken]
    assert [command.chain_id for command in order if isinstance(command, PauseChain)] == [
        chain(name=f"evil{k}").chain_id for k in range(50)
    ]


def test_queue_command_that_is_withdrawn_is_never_taken() -> None:
    queue = CommandQueue()
    answers = [queue.put(PauseChain(chain(name=f"c{k}").chain_id, "mallory")) for k in range(20)]
    assert all(answer.cancel() for answer in answers[:19])
    (left,) = queue.take()
    assert left.answer is answers[19]
    assert not left.answer.cancel(), "each command taken is applied"
    assert not queue.wait(0.0)
    late = queue.put(PauseChain(chain(name="late").chain_id, "mallory"))
    assert late.cancel()
    assert queue.take_all() == ()


states = st.builds(
    lambda name, owner, planned, job, state, status, refused: replace(
        ChainRecord(
            of := owned(owner, name),
            tuple(Link(k, of.tag(k), at, state, JobId(job)) for k, at in enumerate(sorted(planned), start=1)),
            status,
        ),
        refused=refused,
        refused_since=refused,
        refusals=refused > 0,
    ),
    st.sampled_from("abcdef"),
    st.sampled_from(["ada", "bob"]),
    st.lists(st.integers(0, 2 * HOUR), max_size=4),
    st.integers(0, 2),
    st.sampled_from(LinkState),
    st.sampled_from(ChainStatus),
    st.sampled_from([-1, 100, 2 * HOUR]),
)


@given(st.lists(states, max_size=30))
def test_tally_kept_up_with_changes_equals_one_made_anew(changes: list[ChainRecord]) -> None:
    tally, records, limits = Tally(2 * HOUR), {}, Limits(live_links=6, protect_after=2)
    for record in changes:
        chain_id = record.chain.chain_id
        if chain_id in records and records[chain_id].chain.owner != record.chain.owner:
            continue  # a chain keeps its owner
        records[chain_id] = record
        tally.put(record)
        anew = Tally.of(records.values(), 2 * HOUR)
        assert (tally.owners, tally.all, tally.active) == (anew.owners, anew.all, anew.active)
        assert tally.suspects == anew.suspects
        assert protection(tally, limits) == protection(anew, limits)
        assert [shares(tally, each, limits) for each in records.values()] == [
            shares(anew, each, limits) for each in records.values()
        ]
