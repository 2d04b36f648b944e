"""An error of one chain, or of one command, stays there: the others' turns, journal and events continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.named_predictors import NamedGuards
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainId, ChainRecord, DoneCondition
from mirage.domain.command import AddChain
from mirage.domain.errors import ArtifactMismatch, ConfigError, PluginNotFound, StoreUnavailable
from mirage.domain.journal import EntryKind
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.job import JobRequest
    from mirage.ports import Predictor

WIDE = Limits(live_links=1_000, submissions_per_hour=10_000, submissions_per_hour_per_user=10_000)
ENDLESS = DoneCondition(exit_code=None)
ERRORS = (
    OverflowError("Python int too large to convert to SQLite INTEGER"),
    OSError(36, "File name too long: " + "9" * 5_000),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    ConfigError("predictor 'xgboost'", "the model is gone"),
    ArtifactMismatch("/models/x", "is damaged"),
    PluginNotFound("no predictor 'x'"),
)


class Hostile(FakeCluster):
    """Fails on whatever concerns a chain whose name begins with ``bad``."""

    error: Exception = ERRORS[0]

    def submit(self, request: JobRequest):
        if request.tag.startswith("mirage:bad"):
            raise self.error
        return super().submit(request)


class Checked(Guards):
    """Fails on one name as no code does on purpose."""

    def check(self, name: str) -> None:
        if name == "long":
            raise OSError(36, "File name too long")
        super().check(name)


def loop_of(cluster: FakeCluster, *chains, build: Callable[[str], Predictor] = build_predictor):
    journal = MemoryJournal()
    store, commands = MemoryStore(*(ChainRecord(each) for each in chains), journal=journal), CommandQueue()
    outside = LoopDependencies(cluster, cluster, cluster, cluster, cluster, store, journal, cluster, commands)
    default = PredictorGuard(build_predictor("fixed:2h"), build_predictor("reactive"))
    guards = Checked(default, NamedGuards(build, default, 5.0))
    return ControlLoop(outside, guards, LoopSettings(limits=WIDE)), journal, commands


def mixed(bad: int, good: int) -> list:
    names = [f"bad-{n}" if n % 2 and n < 2 * bad else f"good-{n}" for n in range(bad + good)]
    assert len(names) == len(set(names))
    return [chain(done=ENDLESS, name=name) for name in names]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_loop_sixty_failing_chains_leave_the_others_as_alone(error: Exception) -> None:
    chains = mixed(60, 60)
    good = [each for each in chains if each.chain_id.startswith("good")]

    def told_of_good(*those) -> tuple[list, list]:
        cluster = Hostile(lambda request: Fate(wait=HOUR))
        cluster.error = error
        loop, journal, _ = loop_of(cluster, *those)
        for hour in range(0, 100, 10):
            cluster.advance(hour * HOUR)
            loop.cycle()
        about = [e for e in journal.entries if e.chain is not None and e.chain.startswith("good")]
        explained = {c: s for c, s in loop.status.explained.items() if c.startswith("good")}
        return [(e.time, e.chain, e.kind) for e in about], list(explained)

    assert told_of_good(*chains) == told_of_good(*good)


def test_loop_failing_chain_is_explained_and_tried_again() -> None:
    cluster = Hostile()
    loop, journal, _ = loop_of(cluster, *mixed(1, 2))
    cycle = loop.cycle()
    assert [fault.chain for fault in cycle.faults] == ["bad-1"]
    assert "OverflowError" in loop.status.explained[ChainId("bad-1")]
    loop.cycle()
    (entry,) = [e for e in journal.entries if e.chain == "bad-1" and "internal error" in e.text]
    assert entry.kind is EntryKind.TROUBLE, "it is reported one time, not in each cycle"
    Hostile.submit, submit = FakeCluster.submit, Hostile.submit
    try:
        cluster.advance(HOUR)
        assert loop.cycle().faults == ()
    finally:
        Hostile.submit = submit
    assert "mirage:bad-1:1" in [request.tag for request in cluster.submissions]


def test_loop_error_quotes_a_bounded_text() -> None:
    cluster = Hostile()
    cluster.error = OSError("9" * 100_000)
    loop, journal, _ = loop_of(cluster, *mixed(1, 2))
    loop.cycle()
    assert len(loop.status.explained[ChainId("bad-1")]) < 1_000
    assert max(len(entry.text) for entry in journal.entries) < 1_000


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_loop_chain_whose_predictor_fails_goes_on_by_the_default(error: Exception) -> None:
    def build(name: str) -> Predictor:
        del name
        raise error

    cluster = FakeCluster(lambda request: Fate(wait=2 * HOUR))
    lost = chain(done=ENDLESS, name="lost", predictor="xgboost:gone")
    loop, journal, _ = loop_of(cluster, lost, chain(done=ENDLESS, name="plain"), build=build)
    for minute in range(0, 120 * 60, 10):
        cluster.advance(minute * MIN)
        assert loop.cycle().faults == ()
    sent = {
        name: [r for r in cluster.submissions if r.tag.startswith(f"mirage:{name}:")] for name in ("lost", "plain")
    }
    assert len(sent["lost"]) == len(sent["plain"]) > 2
    troubles = [e.text for e in journal.entries if e.chain == "lost" and e.kind is EntryKind.TROUBLE]
    assert troubles
    assert all("no prediction" in text for text in troubles)


def test_loop_unseen_waits_of_one_chain_are_its_own_trouble() -> None:
    class Narrow(FakeCluster):
        def recent_waits(self, count: int, *of: str):
            if count > 2**63:
                raise OverflowError("Python int too large to convert to SQLite INTEGER")
            return super().recent_waits(count, *of)

    cluster = Narrow()
    asks = chain(done=ENDLESS, name="asks", predictor="average:9999999999999999999999999")
    loop, _, _ = loop_of(cluster, asks)
    for hour in range(100):
        cluster.advance(hour * HOUR)
        assert loop.cycle().faults == ()
    assert len(cluster.submissions) > 1


def test_loop_each_command_has_its_own_answer() -> None:
    cluster = FakeCluster()
    loop, _, commands = loop_of(cluster)
    answers = [
        commands.put(AddChain(chain(name=name, predictor=predictor), "alice"))
        for name, predictor in (("one", ""), ("two", "long"), ("three", ""))
    ]
    cycle = loop.cycle()
    assert [isinstance(answer.exception(0), OSError) for answer in answers] == [False, True, False]
    assert [type(fault.error) for fault in cycle.faults] == [OSError]
    assert cycle.wake == cluster.time + 1, "further commands of one user are acted on by the next cycle"
    loop.cycle()
    assert {request.tag for request in cluster.submissions} == {"mirage:one:1", "mirage:three:1"}


def test_loop_store_that_is_away_ends_the_cycle() -> None:
    cluster = Hostile()
    cluster.error = StoreUnavailable("the disk is full")
    loop, _, _ = loop_of(cluster, *mixed(1, 2))
    with pytest.raises(StoreUnavailable):
        loop.cycle()
