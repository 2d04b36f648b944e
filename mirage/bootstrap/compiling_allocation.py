"""Compile the kernels of task pools and of request policies before devices wait for them.

``mirage allocation``, the gateway and replays call them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.das.observation import Settling, sight_of
from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.allocation.engine.allocation_table import AllocationTable, nothing_known, task_table
from mirage.allocation.engine.discovery import Allocation, Device, NodeFound
from mirage.allocation.engine.plan import TaskSpec, WorkPlan
from mirage.allocation.engine.situation import Situation
from mirage.allocation.engine.task_states import TaskStates
from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.rules import SharingRules
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.domain.inference import CostTable, DeviceSet, RequestTable

_POLICIES = ("edf", "triage", "listed")
"""One of each way to play: by heaps, by a compiled decision, by scores that are kept."""


def compile_requests() -> None:
    """Decide once about a small system in every way, as a gateway is asked and as a replay plays.

    What is compiled is kept in the user's cache (``mirage.kernel_compiler``).
    """
    for name in _POLICIES:
        policy, simulated = request_policy(name), SimulatedSystem(_REQUESTS, _SYSTEM, _COSTS, SharingRules())
        simulated.advance()
        simulated.dispatch(policy.decide(simulated.view()))
        simulated.play(policy)


_SYSTEM = DeviceSet(("unit",), np.zeros(1, np.int32), np.inf, np.zeros(1))
_COSTS = CostTable(
    models=("network",),
    first=np.array([0, 1], np.int32),
    pieces=("request",),
    kinds=("kind",),
    seconds=np.ones((1, 1)),
    compute_seconds=np.ones((1, 1)),
    joules=np.zeros((1, 1)),
    dram_bytes=np.zeros((1, 1)),
)
_REQUESTS = RequestTable(
    arrival=np.zeros(2),
    model=np.zeros(2, np.int32),
    tenant=np.zeros(2, np.int32),
    deadline=np.full(2, 2.0),
    weight=np.ones(2),
    tenants=("tenant",),
)


_RULES = (DispatchRules(), DispatchRules(preempt=True), DispatchRules(preempt=True, move=True))


def compile_pool() -> None:
    """Decide once about a small pool in every way, as ``allocation run`` does it and as a replay does.

    Of DAS: what its agents look at and how their opinions become placements, which no graph is needed for.

    What is compiled is kept in the user's cache (``mirage.kernel_compiler``).
    """
    pool = Allocation((NodeFound("node", 1, 1, (Device(0, "gpu"),)),)).pool()
    plan = WorkPlan(Path(), (TaskSpec("task", ("true",), expected=1.0),))
    table, speeds = task_table(plan, pool, 0.0), nothing_known(1, 1)
    view = Situation(plan, table, speeds, 0.0).view(0.0, [0], {}, AllocationTable(pool), TaskStates())
    for ordering in ("sjf", "searched"):
        for rules in _RULES:
            dispatch(view, registry.ordering(ordering), registry.placer("best-fit"), rules)
    Settling(sight_of(view)).add(np.zeros(1, np.int64), np.zeros((1, 1)), np.zeros(1))
    table.work[:] = 1.0
    for ordering in ("sjf", "srtf", "qssf"):
        for rules in _RULES:
            simulated = SimulatedPool(table, pool, speeds, rules)
            simulated.play(registry.ordering(ordering), registry.placer("best-fit"))
