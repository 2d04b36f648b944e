"""Predictors that chains name: whatever they are, the loop continues, and threads and memory stay bounded."""

from __future__ import annotations

import threading
import time

import pytest
from fakes import FakeCluster, Fate, chain

from mirage.bootstrap.policies import build_guards
from mirage.config.model import Config, LoopSection
from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Asker, Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.named_predictors import MOST, MOST_ENSEMBLES, NamedGuards
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainRecord, DoneCondition
from mirage.domain.command import AddChain
from mirage.domain.decision import Observation, RecentWaits, WaitForecast, Wants
from mirage.domain.errors import ArtifactMismatch, ConfigError, MirageError, PluginNotFound
from mirage.domain.job import JobRequest
from mirage.domain.journal import EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.predictors.registry import build_predictor

SEEN = Observation(100, Snapshot.unseen(100), None, JobRequest("s", "u", 10), RecentWaits.none())


class Model:
    """Answers in a thread, and notes in which."""

    wants = Wants(waits=1_234)

    def __init__(self, name: str) -> None:
        self.name = name

    def predict(self, observation: Observation) -> WaitForecast:
        return WaitForecast.point(observation.time + 5)


class Builder:
    """Builds models; those named ``slow`` once the gate is open, and ``broken`` never."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.built: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, name: str) -> Model:
        self.threads.add(threading.current_thread().name)
        self.built.append(name)
        if name.startswith("slow"):
            self.gate.wait(60)
        if name.startswith("broken"):
            raise ArtifactMismatch(name, "there is no such file")
        if name.startswith("fault"):
            raise KeyError("weights")
        return Model(name)


@pytest.fixture
def builder():
    found = Builder()
    yield found
    found.gate.set()


@pytest.fixture
def named(builder: Builder) -> NamedGuards:
    return NamedGuards(builder, PredictorGuard(build_predictor("average"), build_predictor("reactive")), 5.0)


def answered(guards: NamedGuards, name: str):
    return guards.of(name).predict(SEEN)


def test_a_named_predictor_is_built_in_another_thread(named: NamedGuards, builder: Builder) -> None:
    named.prepare("model", 30)
    answer = answered(named, "model")
    assert (answer.by, answer.trouble) == ("model", "")
    assert named.wants.waits == 1_234
    assert threading.current_thread().name not in builder.threads


def test_while_it_is_built_the_fallback_answers_at_once(named: NamedGuards, builder: Builder) -> None:
    began = time.monotonic()
    answer = answered(named, "slow")
    assert time.monotonic() - began < 5
    assert answer.by == "reactive"
    assert "slow is still being loaded; average: " in answer.trouble
    named.prepare("slow", 0.1)
    builder.gate.set()
    named.prepare("slow", 30)
    assert answered(named, "slow").by == "slow"
    assert builder.built == ["slow"]


@pytest.mark.parametrize(
    "name",
    [
        "broken",
        "fault",
        "made-up:/etc/passwd",
        "x" * 100_000,
        "average:9999999999999999999999999",
        "fixed:" + "9" * 5_000 + "d",
        "\ud800",
    ],
    ids=lambda name: name[:20],
)
def test_what_cannot_be_built_is_answered_for(named: NamedGuards, name: str) -> None:
    with pytest.raises(MirageError):
        named.prepare(name, 30)
    with pytest.raises(MirageError):
        named.check(name)
    answer = answered(named, name)
    assert answer.by == "reactive"
    assert len(answer.trouble) < 1_000


def test_sixty_names_keep_no_threads(named: NamedGuards) -> None:
    before = threading.active_count()
    for _ in range(3):
        for seconds in range(1, 61):
            name = f"fixed:{seconds}s"
            answer = answered(named, name)
            assert (answer.by, answer.prediction) == (name, WaitForecast.point(100 + seconds))
    assert threading.active_count() <= before + 1


def test_models_and_ensembles_are_bounded_apart(named: NamedGuards) -> None:
    for number in range(MOST):
        named.prepare(f"model-{number}", 30, Asker(f"user{number}"))
    with pytest.raises(ConfigError, match="chains use 16 other predictors"):
        named.prepare("model-x", 30)
    for number in range(MOST_ENSEMBLES):
        named.prepare(f"ensemble:quantile+fixed:{number}h", 30, Asker(f"user{number}"))
    with pytest.raises(ConfigError, match="chains use 8 other predictors"):
        named.prepare("ensemble:quantile+fixed:99h", 30)
    assert answered(named, "model-x").by == "reactive"
    assert answered(named, "model-0").by == "model-0"


def kept(named: NamedGuards, names: list[str], *askers: Asker) -> list[str]:
    """Those of ``names`` that are built for one of the users."""
    found = []
    for name, asker in zip(names, askers, strict=True):
        try:
            named.prepare(name, 30, asker)
        except ConfigError:
            continue
        found.append(name)
    return found


def test_named_one_user_has_a_quarter_of_the_places(named: NamedGuards) -> None:
    models = [f"model-{number}" for number in range(20)]
    ensembles = [f"ensemble:fixed:{number}h+quantile" for number in range(20)]
    mallory = [Asker("mallory")] * 20
    assert kept(named, models, *mallory) == models[: MOST // 4]
    assert kept(named, ensembles, *mallory) == ensembles[: MOST_ENSEMBLES // 4]
    for name in ("model-x", "ensemble:average+quantile"):
        named.prepare(name, 30, Asker("alice"))
        assert named.of(name, Asker("alice")).predictor.name == name


def test_named_user_with_most_gives_way_when_places_are_taken(named: NamedGuards) -> None:
    names = [f"model-{number}" for number in range(MOST)]
    askers = [Asker(f"user{number % 4}") for number in range(MOST)]
    assert kept(named, names, *askers) == names
    for user in ("alice", "bob", "carol"):
        named.prepare(f"of-{user}", 30, Asker(user))
    assert [named.of(f"of-{user}").predictor.name for user in ("alice", "bob", "carol")] == [
        "of-alice", "of-bob", "of-carol",
    ]  # fmt: skip
    again = kept(named, names, *askers)
    assert len(again) == MOST - 3, "no user takes a predictor from a user with fewer"
    assert {Asker(f"user{int(name.removeprefix('model-')) % 4}") for name in again} == set(askers)


def test_named_questions_push_out_no_chains_and_give_way_first(named: NamedGuards, builder: Builder) -> None:
    asked = [f"ensemble:fixed:{number}h+quantile" for number in range(50)]
    curious = Asker("mallory", question=True)
    assert kept(named, asked, *[curious] * 50) == asked, "the user's earlier requests are dropped first"
    names = [f"ensemble:average+fixed:{number}h" for number in range(MOST_ENSEMBLES)]
    assert kept(named, names, *[Asker(f"user{number}") for number in range(MOST_ENSEMBLES)]) == names
    with pytest.raises(ConfigError, match="other predictors of this kind"):
        named.prepare(asked[0], 30, curious)
    builds = len(builder.built)
    assert kept(named, names, *[Asker(f"user{number}") for number in range(MOST_ENSEMBLES)]) == names
    assert len(builder.built) == builds, "all are kept"


def test_named_slow_builds_of_one_user_leave_a_thread_to_others(named: NamedGuards) -> None:
    for number in range(3):
        assert named.of(f"slow-{number}", Asker("mallory")).predict(SEEN).by == "reactive"
    named.prepare("model", 30, Asker("alice"))
    assert named.of("model", Asker("alice")).predict(SEEN).by == "model"


def test_what_hangs_is_counted_and_bounded(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.control.guard.STUCK", 0.0)
    gate = threading.Event()

    class Hanging(Model):
        def predict(self, observation: Observation) -> WaitForecast:
            gate.wait(60)
            return super().predict(observation)

    guards = NamedGuards(Hanging, build_predictor("reactive"), 0.05)
    before = threading.active_count()
    for number in range(12):
        guards.prepare(f"model-{number}", 30, Asker(f"user{number}"))
        assert answered(guards, f"model-{number}").by == "reactive"
    assert "all 8 threads of predictor are busy" in answered(guards, "model-11").trouble
    assert guards.threads.stuck == 8
    assert threading.active_count() <= before + 8
    gate.set()
    until = time.monotonic() + 30
    while guards.threads.stuck and time.monotonic() < until:
        time.sleep(0.01)
    assert answered(guards, "model-11").by == "model-11"


def test_reloads_add_no_stuck_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.control.guard.STUCK", 0.0)
    monkeypatch.setattr("mirage.bootstrap.policies.named_predictor", lambda name, config, lore: Hanging(name))
    gate = threading.Event()

    class Hanging(Model):
        def predict(self, observation: Observation) -> WaitForecast:
            gate.wait(60)
            return super().predict(observation)

    config = Config(loop=LoopSection(predictor="one", fallback="two", shadows=("three",), budget=0.01))
    guards, before = build_guards(config), threading.active_count()
    for _ in range(30):
        for guard in (guards.of(""), *guards.shadows):
            assert guard.predict(SEEN).by == "reactive"
        guards = build_guards(config, threads=guards.threads)
    assert guards.stuck == 32
    assert threading.active_count() <= before + 32
    gate.set()


def test_builders_that_hang_leave_the_loop_alone(named: NamedGuards) -> None:
    for number in range(20):
        assert "still being loaded" in answered(named, f"slow-{number}").trouble
    assert answered(named, "fixed:1h").by == "fixed:1h"


class Service:
    """A loop over stored chains, each of which names a predictor."""

    def __init__(self, builder: Builder, *names: str) -> None:
        self.cluster = c = FakeCluster(lambda request: Fate(wait=60))
        records = [
            ChainRecord(chain(7_200, name=f"c{place}", predictor=name, done=DoneCondition(links=3)))
            for place, name in enumerate(names)
        ]
        self.store, self.commands, self.journal = MemoryStore(*records), CommandQueue(), MemoryJournal()
        self.store.journal = self.journal
        default = PredictorGuard(build_predictor("reactive"), build_predictor("reactive"))
        self.guards = Guards(default, NamedGuards(builder, default, 5.0))
        outside = LoopDependencies(c, c, c, c, c, self.store, self.journal, c, self.commands)
        self.loop = ControlLoop(outside, self.guards, LoopSettings())

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.cluster.advance(self.cluster.time + 600)
            assert not self.loop.cycle().faults


def test_stored_chains_with_predictors_of_before_go_on_by_the_fallback(builder: Builder) -> None:
    bad = ("xgboost:/srv/models/old", "broken", "fault", "slow", "crystal-ball:x", "average:" + "9" * 30)
    service = Service(builder, "", *bad)
    service.run(30)
    for record in service.store.load():
        assert len(record.links) >= 2, record.chain.predictor
    troubles = [
        entry
        for entry in service.journal.entries
        if entry.kind is EntryKind.TROUBLE and entry.chain == "c1" and "without a path" in entry.text
    ]
    assert troubles
    assert len(troubles) <= 3, "it is reported when it is new"
    decided = [entry for entry in service.journal.entries if entry.chain == "c1" and entry.prediction is not None]
    assert {entry.predictor for entry in decided} == {"reactive"}
    assert {entry.asked for entry in decided} == {"xgboost:/srv/models/old"}


@pytest.mark.parametrize(
    "name", ["xgboost:/tmp/x", "average:" + "9" * 30, "fixed:" + "9" * 5_000 + "d"], ids=range(3)
)
def test_a_new_chain_with_such_a_name_is_rejected_alone(builder: Builder, name: str) -> None:
    service = Service(builder, "")
    bad = service.commands.put(AddChain(chain(name="bad", predictor=name), "ada"))
    good = service.commands.put(AddChain(chain(name="good", predictor="fixed:1h"), "ada"))
    service.run(1)
    assert isinstance(bad.exception(0), PluginNotFound | ConfigError)
    assert good.result(0)
    assert {record.chain.chain_id for record in service.store.load()} == {"c0", "good"}
