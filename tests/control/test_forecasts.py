"""Forecasts against actual starts: only forecasts made as the link was submitted count."""

from __future__ import annotations

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service, waiting

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.forecasts import ForecastLedger, OpenForecast
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryStore
from mirage.domain.chain import ChainId, ChainRecord, DoneCondition
from mirage.domain.decision import WaitForecast
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import Link
from mirage.predictors.registry import build_predictor


class Heard:
    """A journal that the ledger alone reads."""

    def __init__(self) -> None:
        self.ledger = ForecastLedger()
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.ledger.hear(entry)


def watched(wait: float, predictor: str, *shadows: str) -> list[OpenForecast]:
    """Two links' handover on a cluster where every wait is as given, and past waits were two hours."""
    cluster = FakeCluster(lambda request: Fate(wait=int(wait * HOUR)), waits=[2 * HOUR] * 5)
    journal = Heard()
    store = MemoryStore(ChainRecord(chain(done=DoneCondition(links=2))), journal=journal)
    outside = LoopDependencies(
        cluster, cluster, cluster, cluster, cluster, store, journal, cluster, CommandQueue()
    )
    reactive = build_predictor("reactive")
    guards = Guards(
        PredictorGuard(build_predictor(predictor), reactive),
        shadows=tuple(PredictorGuard(build_predictor(name), reactive) for name in shadows),
    )
    loop, found = ControlLoop(outside, guards, LoopSettings()), list[OpenForecast]()
    while not store.load()[0].over:
        cluster.advance(cluster.time + 10 * MIN)
        loop.cycle()
        found += journal.ledger.settle(store.load())
    assert journal.ledger == ForecastLedger(), "nothing is kept indefinitely"
    return found


def test_the_forecast_of_the_submission_is_held_against_the_start() -> None:
    (seen,) = watched(3, "average")
    assert (seen.predictor, seen.link.index) == ("average", 2)
    assert seen.error == pytest.approx(HOUR)


def test_shadows_are_judged_by_the_same_submission() -> None:
    errors = {seen.predictor: seen.error for seen in watched(3, "average", "fixed:5h")}
    assert errors == {"average": pytest.approx(HOUR), "fixed:5h": pytest.approx(-2 * HOUR)}


def test_a_submission_that_was_forced_settles_nothing() -> None:
    """The reactive predictor defers to the end: its forecast of an hour before was for another submit time."""
    assert watched(3, "reactive") == []


def test_where_the_start_lay() -> None:
    forecast = WaitForecast((0.1, 0.5, 0.9), (100.0, 200.0, 300.0))
    places = [OpenForecast("p", forecast, Link(1, "t", 0, start=start)).place for start in (99, 100, 300, 301)]
    assert places == ["early", "within", "within", "late"]


# Keys of entries


def test_an_entry_is_called_the_same_after_it_was_stored(tmp_path) -> None:
    from mirage.store.opening import open_store

    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    entries = [
        Entry(1_700_000_000, ChainId("a"), EntryKind.DECISION, "hold: it is \udcff early\0", 3, "average"),
        Entry(1_700_000_000, ChainId("a"), EntryKind.SHADOW, "hold: it is early", 3, "average"),
        Entry(1_700_000_000, None, EntryKind.TROUBLE, "hold: it is early"),
    ]
    for entry in entries:
        store.journal.write(entry)
    store.journal.flush()
    read = [line.entry.key for line in reversed(store.journal.read())]
    assert read == [entry.key for entry in entries]
    assert len(set(read)) == 3
    store.close()


def test_the_journal_says_who_was_asked_where_another_answered() -> None:
    class Broken:
        name, wants = "broken", build_predictor("reactive").wants
        version = "0123456789ab"

        def predict(self, observation):
            raise RuntimeError("no")

    service = Service(waiting(1), "average")
    took: list[str] = []
    guard = PredictorGuard(Broken(), build_predictor("reactive"), took=lambda name, seconds: took.append(name))
    service.loop.reconfigure(Guards(guard), LoopSettings())
    service.run(3 * HOUR)
    said = [entry for entry in service.journal.entries if entry.prediction is not None]
    assert {(entry.asked, entry.predictor, entry.model) for entry in said} == {("broken", "reactive", "")}
    assert took == ["broken"] * len(said)
