"""A submission that ends slurmrestd each time pauses that chain alone; an outage pauses none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainId, ChainRecord, ChainStatus, DoneCondition
from mirage.domain.command import ResumeChain
from mirage.domain.errors import BackEndLost, ClusterUnavailable
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest


class Fragile(FakeCluster):
    """Ends when it is sent a link of a chain whose name begins with one of ``fatal``."""

    fatal: tuple[str, ...] = ("bad",)
    error: type[ClusterUnavailable] = BackEndLost

    def submit(self, request: JobRequest):
        self.tried = [*getattr(self, "tried", []), request.tag]
        if request.tag.startswith(tuple(f"mirage:{name}" for name in self.fatal)):
            raise self.error("Remote end closed connection without response")
        return super().submit(request)


class Site:
    """Three chains; links of the good ones run for half an hour."""

    def __init__(self) -> None:
        done = DoneCondition(exit_code=None)
        names = ("bad", "good-1", "good-2")
        chains = [replace(chain(30 * MIN, done=done, name=name), owner=name) for name in names]
        self.cluster = Fragile(lambda request: Fate())
        self.store = MemoryStore(*(ChainRecord(each) for each in chains))
        self.restart()

    def restart(self) -> None:
        c, self.commands = self.cluster, CommandQueue()
        outside = LoopDependencies(c, c, c, c, c, self.store, MemoryJournal(), c, self.commands)
        reactive = build_predictor("reactive")
        self.loop = ControlLoop(outside, Guards(PredictorGuard(reactive, reactive)), LoopSettings())

    def run(self, seconds: int, *, restarts: bool = False) -> dict[str, ChainStatus]:
        end = self.cluster.time + seconds
        while self.cluster.time < end:
            self.cluster.advance(self.cluster.time + MIN)
            if restarts and self.cluster.time % (20 * MIN) == 0:
                self.restart()
            self.loop.cycle()
        return {record.chain.name: record.status for record in self.store.load()}


@pytest.mark.parametrize("restarts", [False, True])
def test_chain_that_ends_the_back_end_pauses_alone(restarts: bool) -> None:
    site = Site()
    found = site.run(3 * HOUR, restarts=restarts)
    assert found == {
        "bad": ChainStatus.PAUSED,
        "good-1": ChainStatus.ACTIVE,
        "good-2": ChainStatus.ACTIVE,
    }
    assert 3 <= site.cluster.tried.count("mirage:bad:1") <= 6


def test_resumed_chain_has_its_tries_again() -> None:
    site = Site()
    site.run(3 * HOUR)
    site.cluster.fatal = ("none",)
    site.commands.put(ResumeChain(ChainId("bad"), "bad"))
    assert site.run(10 * MIN)["bad"] is ChainStatus.ACTIVE
    assert any(request.tag == "mirage:bad:1" for request in site.cluster.submissions)


@pytest.mark.parametrize(("fatal", "error"), [(("bad", "good"), BackEndLost), (("bad",), ClusterUnavailable)])
def test_outage_of_submissions_pauses_nobody(fatal: tuple[str, ...], error: type[ClusterUnavailable]) -> None:
    site = Site()
    site.cluster.fatal, site.cluster.error = fatal, error
    assert set(site.run(6 * HOUR).values()) == {ChainStatus.ACTIVE}
    site.cluster.fatal = ("none",)
    site.run(HOUR)
    assert {request.user for request in site.cluster.submissions} == {"bad", "good-1", "good-2"}
