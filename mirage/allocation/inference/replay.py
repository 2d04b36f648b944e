"""Replay several policies on the same requests, scenario by scenario, each run in a separate process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from mirage.allocation.comparing import run_apart
from mirage.allocation.inference.bound import most_kept
from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.rules import Costly
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.scenario import Trace, find_scenario
from mirage.allocation.inference.workload.stage import set_stage
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.inference.outcome import RequestFigures, RequestRunResult, SystemFigures
    from mirage.allocation.inference.workload.stage import PreparedScenario


@dataclass(frozen=True, slots=True)
class RequestReplay:
    """What to replay."""

    scenarios: tuple[str, ...]
    """Names or paths."""
    policies: tuple[str, ...]
    """Names in the registry."""
    seeds: tuple[int, ...] = (0,)
    logged: bool = False
    """Whether the first seed's outcomes log the segments by unit and time."""
    bounded: bool = False
    """Whether to compute the bound that no policy can exceed."""


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy on one scenario's requests of one seed."""

    scenario: str
    policy: str
    seed: int
    figures: SystemFigures
    tenants: tuple[RequestFigures, ...]
    models: tuple[RequestFigures, ...]


@dataclass(frozen=True, slots=True)
class ComparedPolicies:
    """Results of all runs, and the first seed's in full."""

    replay: RequestReplay
    runs: tuple[PolicyRun, ...]
    """Figures by scenario, policy and seed."""
    shown: tuple[RequestRunResult, ...]
    """Outcomes by scenario and policy, of the first seed."""
    bounds: tuple[tuple[float, ...], ...] = ()
    """Satisfaction that no policy can exceed, by scenario and seed; empty if not requested."""

    def of(self, scenario: str, policy: str) -> tuple[PolicyRun, ...]:
        """Figures of a policy's runs on a scenario, by seed."""
        return tuple(run for run in self.runs if (run.scenario, run.policy) == (scenario, policy))

    def bounds_of(self, scenario: str) -> tuple[float, ...]:
        """The bound by seed: the satisfaction that no policy can exceed; empty if not requested."""
        return self.bounds[self.replay.scenarios.index(scenario)] if self.bounds else ()

    def stage(self, scenario: str) -> PreparedScenario:
        """The stage of a scenario."""
        return _stage(scenario)


def play_all(
    replay: RequestReplay, workers: int, played: Callable[[int], None] = lambda total: None
) -> ComparedPolicies:
    """Run every policy on every scenario with every seed; ``played`` is called after each run with their number.

    A bound counts as a run. Raises what reading, running and bounding raise (``MirageError``), ``ConfigError`` for
    missing or duplicate entries.
    """
    check(replay)
    runs, shown, bounds = [], [], []
    sets = [(scenario, seed) for scenario in replay.scenarios for seed in replay.seeds] if replay.bounded else []
    places = [
        (replay, scenario, policy, seed)
        for scenario in replay.scenarios
        for policy in replay.policies
        for seed in replay.seeds
    ]
    for run, outcome in run_apart(_play, places, workers):
        runs.append(run)
        shown += [outcome] if outcome is not None else []
        played(len(places) + len(sets))
    for bound in run_apart(_bound, sets, workers):
        bounds.append(bound)
        played(len(places) + len(sets))
    count = len(replay.seeds)
    by_scenario = tuple(tuple(bounds[row : row + count]) for row in range(0, len(bounds), count))
    return ComparedPolicies(replay, tuple(runs), tuple(shown), by_scenario)


def check(replay: RequestReplay) -> None:
    """Raise ``ConfigError`` for an invalid replay, before any run."""
    for what, those in (("SCENARIO", replay.scenarios), ("--compare", replay.policies), ("--seeds", replay.seeds)):
        if not those or len(set(those)) < len(those):
            raise ConfigError(what, "expected at least one, without duplicates")
    for policy in replay.policies:
        request_policy(policy)
    for scenario in replay.scenarios:
        _stage(scenario)
        if len(replay.seeds) > 1 and isinstance(_stage(scenario).scenario.arrivals, Trace):
            raise ConfigError(
                "--seeds", f"the arrivals of {scenario} are a trace, the same for every seed; give one seed"
            )


def _bound(scenario: str, seed: int) -> float:
    """Largest share of a seed's requests that can be answered in time."""
    stage = _stage(scenario)
    requests = stage.requests(seed)
    return most_kept(requests, stage.system, stage.costs) / max(len(requests), 1)


def _play(
    replay: RequestReplay, scenario: str, policy: str, seed: int
) -> tuple[PolicyRun, RequestRunResult | None]:
    """The figures, and for the first seed the whole outcome: others are not sent between processes."""
    stage, player, first = _stage(scenario), request_policy(policy), seed == replay.seeds[0]
    rules = replace(stage.rules, logged=replay.logged and first)
    if isinstance(player, Costly):
        rules = replace(rules, decision_seconds=player.decision_seconds, decision_joules=player.decision_joules)
    outcome = SimulatedSystem(stage.requests(seed), stage.system, stage.costs, rules).play(player)
    run = PolicyRun(scenario, policy, seed, outcome.figures, outcome.by_tenant, outcome.by_model)
    return run, outcome if first else None


@lru_cache(maxsize=8)
def _stage(scenario: str) -> PreparedScenario:
    """The stage, built once in each process for all policies and seeds."""
    return set_stage(find_scenario(scenario))
