"""A control loop over a scripted cluster, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.control.clocks import SimulatedTicks
from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainRecord, DoneCondition
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from mirage.domain.chain import Chain
    from mirage.ports import ChainStore, Clock


class Service:
    """A loop with its cluster, database and journal; ``crash`` loses all but the cluster and the database."""

    clock: Clock | None = None
    """The loop's own, where it is not the cluster's."""

    def __init__(
        self,
        cluster: FakeCluster,
        predictor: str = "reactive",
        links: int = 2,
        chain_: Chain | None = None,
        store: ChainStore | None = None,
        **policy,
    ) -> None:
        """``store``: another than one in memory, which keeps scripts in its records."""
        self.cluster = cluster
        self.store = store or MemoryStore()
        self.store.save(ChainRecord(chain_ or chain(done=DoneCondition(links=links))))
        self.predictor = predictor
        self.policy = LoopSettings(**policy)
        self.crash()

    def crash(self) -> None:
        self.journal = self.store.journal = MemoryJournal()
        self.commands = CommandQueue()
        c = self.cluster
        outside = LoopDependencies(
            c, c, c, c, self.clock or c, self.store, self.journal, c, self.commands, sharing=c
        )
        guard = PredictorGuard(build_predictor(self.predictor), build_predictor("reactive"))
        self.loop = ControlLoop(outside, Guards(guard), self.policy)

    def cycle(self, time: int | None = None) -> str:
        self.cluster.advance(self.cluster.time if time is None else time)
        sentence = self.loop.cycle().sentence
        self.record.check()
        return sentence

    def run(self, until: int, tick: int = 10 * MIN) -> ChainRecord:
        self.loop.run(SimulatedTicks(self.cluster, tick, until), lambda: self.record.over)
        self.record.check()
        return self.record

    @property
    def record(self) -> ChainRecord:
        (record,) = self.store.load()
        return record


def waiting(hours: float) -> FakeCluster:
    return FakeCluster(lambda request: Fate(wait=int(hours * HOUR)))
