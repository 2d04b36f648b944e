"""Several policies on the same requests, side by side, scenario by scenario, each run in a process of its own."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.rules import Costly
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.scenario import Trace
from mirage.allocation.inference.workload.scenariofile import find_scenario
from mirage.allocation.inference.workload.stage import set_stage
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.allocation.inference.outcome import Figures, Outcome, SystemFigures
    from mirage.allocation.inference.workload.stage import Stage


@dataclass(frozen=True, slots=True)
class RequestReplay:
    """What is to be played."""

    scenarios: tuple[str, ...]
    """By name or path."""
    policies: tuple[str, ...]
    """By the registry's names."""
    seeds: tuple[int, ...] = (0,)
    logged: bool = False
    """Whether the first seed's outcomes tell who was on which unit when."""


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one scenario's requests of one seed."""

    scenario: str
    policy: str
    seed: int
    figures: SystemFigures
    tenants: tuple[Figures, ...]
    models: tuple[Figures, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """All runs, and the first seed's in full."""

    replay: RequestReplay
    runs: tuple[Run, ...]
    """By scenario, policy and seed."""
    shown: tuple[Outcome, ...]
    """By scenario and policy, of the first seed."""

    def of(self, scenario: str, policy: str) -> tuple[Run, ...]:
        """A policy's runs on a scenario, by seed."""
        return tuple(run for run in self.runs if (run.scenario, run.policy) == (scenario, policy))

    def stage(self, scenario: str) -> Stage:
        """What a scenario was played on."""
        return _stage(scenario)


def play_all(replay: RequestReplay, workers: int, played: Callable[[int], None] = lambda total: None) -> Compared:
    """Play every policy on every scenario with every seed; ``played`` is called after each run with their number.

    Raises what reading and playing raise (``MirageError``), ``ConfigError`` for what is not there or there twice.
    """
    check(replay)
    runs, shown = [], []
    places = [
        (scenario, policy, seed)
        for scenario in replay.scenarios
        for policy in replay.policies
        for seed in replay.seeds
    ]
    for run, outcome in _played(replay, places, workers):
        runs.append(run)
        shown += [outcome] if outcome is not None else []
        played(len(places))
    return Compared(replay, tuple(runs), tuple(shown))


def check(replay: RequestReplay) -> None:
    """Raise ``ConfigError`` for what cannot be played, before anything is."""
    for what, those in (("scenarios", replay.scenarios), ("policies", replay.policies), ("seeds", replay.seeds)):
        if not those or len(set(those)) < len(those):
            raise ConfigError(what, "there must be at least one, and none twice")
    for policy in replay.policies:
        request_policy(policy)
    for scenario in replay.scenarios:
        _stage(scenario)
        if len(replay.seeds) > 1 and isinstance(_stage(scenario).scenario.arrivals, Trace):
            raise ConfigError(
                "seeds", f"the arrivals of {scenario} are a trace, the same for every seed: give one"
            )


def _played(
    replay: RequestReplay, places: list[tuple[str, str, int]], workers: int
) -> Iterator[tuple[Run, Outcome | None]]:
    if min(workers, len(places)) <= 1:
        yield from (_play(replay, *place) for place in places)
        return
    # Started afresh: forking a process that has threads (a progress bar) is not safe.
    with ProcessPoolExecutor(min(workers, len(places)), get_context("spawn")) as pool:
        yield from pool.map(_play, [replay] * len(places), *zip(*places, strict=True))


def _play(replay: RequestReplay, scenario: str, policy: str, seed: int) -> tuple[Run, Outcome | None]:
    """The figures, and for the first seed the whole outcome: others need not travel between processes."""
    stage, player, first = _stage(scenario), request_policy(policy), seed == replay.seeds[0]
    rules = replace(stage.rules, logged=replay.logged and first)
    if isinstance(player, Costly):
        rules = replace(rules, decision_seconds=player.decision_seconds, decision_joules=player.decision_joules)
    outcome = SimulatedSystem(stage.requests(seed), stage.system, stage.costs, rules).play(player)
    run = Run(scenario, policy, seed, outcome.figures, outcome.by_tenant, outcome.by_model)
    return run, outcome if first else None


@lru_cache(maxsize=8)
def _stage(scenario: str) -> Stage:
    """Set once in each process, for all policies and seeds."""
    return set_stage(find_scenario(scenario))
