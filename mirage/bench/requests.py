"""How fast requests are simulated and decided on: segments per second in whole runs, and decisions of each policy.

CPU seconds of this process, the fastest of several repetitions; the machine may be shared.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.registry import POLICIES, request_policy
from mirage.allocation.inference.relmas.artifact import policy_name
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.scenariofile import find_scenario
from mirage.allocation.inference.workload.stage import set_stage
from mirage.bench.section import Section
from mirage.domain.request import RequestTable
from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.allocation.inference.workload.stage import Stage
    from mirage.domain.units import SystemView

READY = 64
SECONDS = 20.0
"""Of each scenario."""
PLAYED = ("fcfs", "edf", "edf:late-last", "llf:late-last", "prema")
REPEATS = 3
DECISIONS = 200


def measure_requests(models: Path | None, say: Callable[[str], None]) -> tuple[Section, ...]:
    """Whole runs and decisions. ``models``: directory of a trained agent, measured next to the others."""
    say("compiling, or reading the compiled kernel")
    stage = set_stage(find_scenario("medium"))
    stage.simulated(0).play(request_policy("fcfs"))
    sections = []
    for name in ("medium", "mixed-heavy"):
        say(f"whole runs: {name}")
        sections.append(_whole_runs(name))
    say("one decision")
    agents = (policy_name(models),) if models else ()
    sections.append(_decisions(stage, (*(name for name in sorted(POLICIES) if not name.endswith(":")), *agents)))
    return tuple(sections)


def _whole_runs(name: str) -> Section:
    stage = set_stage(replace(find_scenario(name), duration=SECONDS))
    rows = tuple((policy, _whole_run(stage, policy)) for policy in PLAYED)
    return Section(f"whole runs: {name}, {SECONDS:g} s on {len(stage.system.names)} units, one core", rows)


def _whole_run(stage: Stage, policy: str) -> str:
    requests, taken = stage.requests(0), []
    for _ in range(REPEATS):
        system = SimulatedSystem(requests, stage.system, stage.costs, stage.rules)
        begun = time.process_time()
        outcome = system.play(request_policy(policy))
        taken.append(time.process_time() - begun)
    waiting = np.nansum(outcome.latency) / outcome.figures.span
    return (
        f"{outcome.pieces / min(taken) / 1e6:.2f} million pieces/s ({outcome.pieces:,} pieces,"
        f" {waiting:,.0f} requests in the system on average)"
    )


def _decisions(stage: Stage, policies: tuple[str, ...]) -> Section:
    """By the way of the gateway: a view in, a dispatch out."""
    view = _crowded(stage)
    rows = tuple((policy, _decision(policy, view)) for policy in policies)
    units = len(stage.system.names)
    return Section(f"one decision: {len(view.request)} ready pieces, {units} units, one of them free", rows)


def _crowded(stage: Stage) -> SystemView:
    """All units but one are busy, and many requests wait."""
    come, drawn = READY + len(stage.system.names) - 1, stage.requests(1)
    requests = RequestTable(
        arrival=np.zeros(come),
        model=drawn.model[:come],
        tenant=drawn.tenant[:come],
        deadline=(drawn.deadline - drawn.arrival)[:come],
        weight=drawn.weight[:come],
        tenants=drawn.tenants,
    )
    system = SimulatedSystem(requests, stage.system, stage.costs, stage.rules)
    system.advance()
    begun = request_policy("fcfs").decide(system.view())
    system.dispatch(Dispatch(begun.ready[:-1], begun.unit[:-1]))
    return system.view()


def _decision(name: str, view: SystemView) -> str:
    policy = request_policy(name)
    policy.begin()
    policy.decide(view)
    taken = []
    for _ in range(DECISIONS):
        begun = time.process_time()
        policy.decide(view)
        taken.append(time.process_time() - begun)
    return f"{np.median(taken) * 1e6:,.0f} us (fastest {min(taken) * 1e6:,.0f})"
