"""A loop whose records have their scripts in the database alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, FakeCluster, chain
from sqlalchemy import update

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal
from mirage.domain.chain import ChainId, ChainRecord
from mirage.domain.command import AddChain, CancelChain
from mirage.domain.decision import Wants
from mirage.domain.job import BatchScript
from mirage.predictors.registry import build_predictor
from mirage.store.opening import open_store
from mirage.store.tables import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.chain import Chain
    from mirage.domain.decision import Observation, Prediction
    from mirage.store.opening import Store

SCRIPT = BatchScript("#!/bin/sh\nexec serve\n", ("--mem=1",), (("KEY", "secret"),), "/home/alice", ("--fast",))


class Planner:
    """Wants Slurm's plan."""

    name = "planner"
    wants = Wants(plan=True)

    def __init__(self) -> None:
        self._reactive = build_predictor("reactive")

    def predict(self, observation: Observation) -> Prediction:
        return self._reactive.predict(observation)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/mirage.db")
    yield opened
    opened.close()


def scripted(name: str, script: BatchScript = SCRIPT) -> Chain:
    svc = chain(name=name)
    return replace(svc, request=replace(svc.request, batch=script))


def loop_of(cluster: FakeCluster, store: Store, commands: CommandQueue) -> ControlLoop:
    c, journal = cluster, MemoryJournal()
    outside = LoopDependencies(c, c, c, c, c, store.chains, journal, c, commands, sharing=c)
    return ControlLoop(outside, Guards(PredictorGuard(Planner(), build_predictor("reactive"))), LoopSettings())


def test_links_and_plans_are_asked_for_with_the_whole_script(store: Store) -> None:
    cluster, commands = FakeCluster(), CommandQueue()
    asked: list[BatchScript | None] = []
    estimate = cluster.estimate_start
    cluster.estimate_start = lambda request: (asked.append(request.batch), estimate(request))[1]  # type: ignore[method-assign]
    commands.put(AddChain(scripted("svc"), "alice"))
    loop = loop_of(cluster, store, commands)
    for time in (0, 60, HOUR):
        cluster.advance(time)
        loop.cycle()
    (sent,) = cluster.submissions
    assert sent == replace(scripted("svc").link_request(1), dependencies=sent.dependencies)
    assert asked, "a planner has Slurm asked for its plan"
    assert {each.text for each in asked if each} == {SCRIPT.text}


def test_damaged_script_ends_the_turn_of_its_chain_alone(store: Store) -> None:
    cluster, commands = FakeCluster(), CommandQueue()
    store.chains.save(ChainRecord(scripted("hurt", replace(SCRIPT, text="#!/bin/sh\nexec hurt\n"))))
    digest = store.chains.load()[0].chain.request.batch.reference.text
    store.database.write(
        lambda c: c.execute(update(scripts).where(scripts.c.digest == digest).values(content=b"#!/bin/sh\n"))
    )
    commands.put(AddChain(scripted("well"), "alice"))
    cycle = loop_of(cluster, store, commands).cycle()
    assert [fault.chain for fault in cycle.faults] == [ChainId("hurt")]
    assert [request.tag for request in cluster.submissions] == ["mirage:well:1"]
    assert not store.chains.load()[0].links, "no intent is stored for what cannot be sent"


def test_script_leaves_the_database_with_its_chain(store: Store) -> None:
    cluster, commands = FakeCluster(), CommandQueue()
    commands.put(AddChain(scripted("svc"), "alice"))
    loop = loop_of(cluster, store, commands)
    loop.cycle()
    commands.put(CancelChain(ChainId("svc"), "alice"))
    for time in (60, 120, 180):
        cluster.advance(time)
        loop.cycle()
    assert store.database.read(lambda c: c.execute(scripts.select()).all()) == []
    (record,) = store.chains.load()
    assert record.over
    assert record.chain.request.batch == BatchScript("", SCRIPT.options, (), SCRIPT.directory)
