"""The reported savings of handovers, against submissions at the ends on a copy of the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirage.backends.simulated import SimulatedCluster
from mirage.bootstrap.simulated import background
from mirage.cli.demo import demo_chains
from mirage.control.clocks import SimulatedTicks
from mirage.control.commands import NoCommands
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore, NoFiles
from mirage.domain.chain import ChainRecord
from mirage.domain.job import JobState
from mirage.predictors.registry import build_predictor
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import Chain
    from mirage.domain.link import Link

NOW = 1_700_000_000
TICK, DAY = 600, 86_400


def test_true_waits_lie_where_they_are_said_to_lie() -> None:
    """Two seeds with queues of hours. Sums: a link starts immediately or much later, seldom at the median."""
    found = [each for seed in (1, 2) for each in appraised(seed, 8 * DAY)]
    assert len(found) >= 12
    true = sum(wait for _, wait in found)
    said = [link.alternative for link, _ in found if link.alternative is not None]
    assert true > DAY
    assert sum(each.p10 for each in said) <= true <= sum(each.p90 for each in said)
    assert sum(each.p50 for each in said) == pytest.approx(true, rel=0.75)
    within = sum(each.p10 - 60 <= wait <= each.p90 + 60 for each, (_, wait) in zip(said, found, strict=True))
    assert within >= 0.6 * len(found)


def appraised(seed: int, seconds: int) -> Iterator[tuple[Link, int]]:
    """Each link that was appraised, and how long it would have waited."""
    (chain,) = (each for each in demo_chains("me", "/tmp") if each.name == "train-llm")
    cluster = SimulatedCluster(
        Simulation(load_cluster("demo-large"), background(f"generated:demo:{seed}", NOW), start=NOW)
    )
    store = MemoryStore(ChainRecord(chain), journal=MemoryJournal())
    c = cluster
    outside = LoopDependencies(c, c, c, c, c, store, store.journal, NoFiles(), NoCommands(), sharing=c)
    guards = Guards(PredictorGuard(build_predictor("quantile"), build_predictor("reactive")))
    loop = ControlLoop(outside, guards, LoopSettings(appraise=900))
    ticks, known = SimulatedTicks(cluster, TICK, NOW + seconds), set[int]()
    cycle = loop.cycle()
    while ticks.wait(cycle.wake, cycle.deciding):
        cycle = loop.cycle()
        (record,) = store.load()
        for link in record.links:
            if link.alternative is not None and link.index not in known:
                known.add(link.index)
                yield link, counterfactual(cluster.copy(), chain, link)


def counterfactual(cluster: SimulatedCluster, chain: Chain, link: Link) -> int:
    """The wait of the same job, submitted now instead of the link."""
    cluster.cancel(link.job_id, "me")
    now = cluster.now()
    job = cluster.submit(replace(chain.request, tag="instead"))
    while cluster.simulation.job(job).state is JobState.PENDING:
        cluster.advance(cluster.now() + TICK)
    return cluster.simulation.job(job).start - now
