"""Compile the kernel of request policies (gateway and replays) before devices wait for it."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.rules import SharingRules
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.domain.request import CostTable, RequestTable
from mirage.domain.units import UnitSystem

_POLICIES = ("edf", "triage", "listed")
"""One of each way to play: by heaps, by a compiled decision, by scores that are kept."""


def compile_requests() -> None:
    """Decide once about a small system in every way, as a gateway is asked and as a replay plays.

    What is compiled is kept in the user's cache (``mirage.simulator.kernel.compile``).
    """
    for name in _POLICIES:
        policy, simulated = request_policy(name), SimulatedSystem(_REQUESTS, _SYSTEM, _COSTS, SharingRules())
        simulated.advance()
        simulated.dispatch(policy.decide(simulated.view()))
        simulated.play(policy)


_SYSTEM = UnitSystem(("unit",), np.zeros(1, np.int32), np.inf, np.zeros(1))
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
