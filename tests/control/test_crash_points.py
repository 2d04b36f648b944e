"""The daemon dies at each of its calls to the database and to Slurm, right before it and right after it.

Whatever is in memory is lost then, and the next daemon begins from the database. However often and wherever that
happens: no link is submitted twice while one lives, none is forgotten, and the journal reports each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.bootstrap.records import LoggedChains, LoggedJournal
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.domain.chain import (
    ChainId,
    ChainRecord,
    DoneCondition,
    HandoverPolicy,
    HandoverSettings,
    WarnSignal,
)
from mirage.domain.journal import EntryKind
from mirage.domain.link import LinkState
from mirage.predictors.registry import build_predictor
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINKS = 3
CALLS = ("submit", "cancel", "signal", "save")


class Killed(BaseException):
    """The end of the process: no code in it can catch this."""


@dataclass
class Reaper:
    """Counts calls, and kills at one of them."""

    at: int
    """Which of the times, two a call; beyond the last one: never."""
    count: int = 0
    where: list[str] = field(default_factory=list)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self._pass(f"before {name}")
            result = call(*arguments, **named)
            self._pass(f"after {name}")
            return result

        return called

    def _pass(self, where: str) -> None:
        self.count += 1
        self.where.append(where)
        if self.count == self.at:
            raise Killed


class Watched:
    """Any object, the calls of some of whose methods are counted."""

    def __init__(self, behind: Any, reaper: Reaper) -> None:
        self._behind, self._reaper = behind, reaper

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        return self._reaper.around(name, found) if name in CALLS else found


@dataclass
class World:
    """The state that outlives a daemon: the cluster and the database's file."""

    cluster: FakeCluster
    url: str
    most_alive: int = 0

    def life(self, reaper: Reaper) -> bool:
        """One daemon until it dies (false) or the chain is over (true)."""
        store = open_store(self.url)
        cluster, chains = Watched(self.cluster, reaper), Watched(store.chains, reaper)
        journal = LoggedJournal(store.journal, lambda: None)
        outside = LoopDependencies(*(cluster,) * 5, LoggedChains(chains, journal), journal, self.cluster)  # type: ignore[misc]
        guards = Guards(PredictorGuard(build_predictor("fixed:1h"), build_predictor("reactive")))
        try:
            loop = ControlLoop(outside, guards, LoopSettings(settle=2 * MIN))
            while not self.record(store).over:
                self.cluster.advance(self.cluster.time + 10 * MIN)
                loop.cycle()  # what is not saved with a record stays in memory and is lost
                self.look()
        except Killed:
            return False
        finally:
            store.database.close()
        return True

    def look(self) -> None:
        alive = [job.tag for job in self.cluster.live()]
        assert len(alive) == len(set(alive)), f"one link, two jobs: {alive}"

    @staticmethod
    def record(store: Any) -> ChainRecord:
        (record,) = store.chains.load()
        record.check()
        return record


def world(folder: Path) -> World:
    """A chain whose links overlap, exit for their successors, and end at last."""
    cluster = FakeCluster(lambda request: Fate(wait=20 * MIN, obeys=60))
    url = f"sqlite:///{folder}/mirage.db"
    store = open_store(url)
    handover = HandoverSettings(HandoverPolicy.ON_START, WarnSignal("USR1", 60))
    store.chains.save(ChainRecord(chain(4 * HOUR, DoneCondition(exit_code=None, links=LINKS), handover=handover)))
    store.close()
    return World(cluster, url)


def check(found: World, where: str) -> None:
    store = open_store(found.url)
    record = found.record(store)
    tags = [request.tag for request in found.cluster.submissions]
    assert tags == [f"mirage:svc:{n}" for n in range(1, LINKS + 1)], where
    assert [link.job_id for link in record.links] == [100, 101, 102], where
    assert all(link.state is LinkState.ENDED for link in record.links), where
    lines = [line.entry for line in store.journal.read(ChainId("svc"), limit=10_000)]
    told = {entry.link for entry in lines if entry.kind in (EntryKind.ACTION, EntryKind.EVENT)}
    assert told >= {1, 2, 3}, where
    outcomes = [entry.link for entry in lines if entry.kind is EntryKind.OUTCOME]
    assert sorted(outcomes) == [1, 2], f"each handover is reported once: {where}"
    assert len(store.outcomes.read()) == 2, where
    store.close()


@pytest.fixture(scope="module")
def instants(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many there are in a life without death."""
    found, reaper = world(tmp_path_factory.mktemp("whole")), Reaper(0)
    assert found.life(reaper)
    check(found, "no death")
    assert {"before submit", "after submit", "after signal", "after save"} <= set(reaper.where)
    return reaper.count


def test_a_death_at_each_instant(instants: int, tmp_path: Path) -> None:
    for at in range(1, instants + 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        found, reaper = world(folder), Reaper(at)
        assert not found.life(reaper)
        assert found.life(Reaper(0))
        check(found, f"death {reaper.where[-1]}, the {at}th time")


def test_a_daemon_that_dies_at_every_fourth_instant_gets_on_all_the_same(tmp_path: Path) -> None:
    found, lives = world(tmp_path), 1
    while not found.life(Reaper(4)):
        lives += 1
        assert lives < 500, "it gets nowhere"
    check(found, f"{lives} lives")
    assert lives > 10
