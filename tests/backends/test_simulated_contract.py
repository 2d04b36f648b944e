"""The simulated cluster under the contract of every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from backends.contract import HOUR, Contract, Doing, Facts, World

from mirage.backends.simulated import SimulatedCluster, SimulatedExecution
from mirage.domain.job import JobRequest, JobState
from mirage.simulator.cluster import (
    ClusterConfig,
    NodeGroup,
    Partition,
    PriorityWeights,
    SchedulerParameters,
)
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CPU = tuple(f"c{i}" for i in range(4))
GPU = tuple(f"g{i}" for i in range(2))
CLUSTER = ClusterConfig(
    "contract",
    (NodeGroup(CPU, cpus=4), NodeGroup(GPU, cpus=4, gres=(("gpu:v100", 4),))),
    (
        Partition("cpu", CPU, max_time=48 * HOUR, exclusive=True, default=True),
        Partition("gpu", GPU, max_time=48 * HOUR),
    ),
    priority=PriorityWeights(age=10_000, job_size=1_000),
    scheduler=SchedulerParameters(batch_sched_delay=0),
)
NOON = 1_700_000_000


class SimulatedWorld(World):
    facts = Facts(
        "alice",
        "cpu",
        len(CPU),
        48 * HOUR,
        gres=("gpu:v100", 4),
        gres_partition="gpu",
        accounts=False,
        signals=False,
        accounting=False,
        by_id=False,
    )

    def __init__(self) -> None:
        self._doings: dict[str, Doing] = {}
        self.simulated = SimulatedCluster(Simulation(CLUSTER, start=NOON), self._run)
        self.cluster = self.actuator = self.estimator = self.simulated

    def _run(self, request: JobRequest) -> SimulatedExecution:
        doing = self._doings[request.tag]
        if doing.runs is None:
            return SimulatedExecution(request.limit, JobState.TIMEOUT)
        outcome = JobState.FAILED if doing.exit_code else JobState.COMPLETED
        return SimulatedExecution(doing.runs, outcome, doing.exit_code)

    def arrange(self, request: JobRequest, doing: Doing) -> JobRequest:
        self._doings[request.tag] = doing
        return request

    def pass_time(self) -> None:
        self.simulated.advance(self.simulated.now() + 10)

    def controller_down(self) -> AbstractContextManager[None]:
        pytest.skip("a simulation always answers")


class TestSimulated(Contract):
    @pytest.fixture
    def world(self) -> World:
        return SimulatedWorld()
