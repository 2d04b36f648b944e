"""Replay several policies on the same tasks and pool, each in a separate process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from mirage.allocation.comparing import run_apart
from mirage.allocation.ddl import registry
from mirage.allocation.ddl.dispatch import DispatchRules
from mirage.allocation.ddl.formats.readers import read_source
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.ddl.formats.readers import TaskSource
    from mirage.allocation.ddl.formats.table import TaskTrace
    from mirage.allocation.ddl.outcome import TaskRunFigures, TaskRunResult
    from mirage.domain.pool import SpeedTable


@dataclass(frozen=True, slots=True)
class PolicyPair:
    """An ordering policy and a placement policy, by their names in the registry."""

    ordering: str
    placer: str

    @property
    def name(self) -> str:
        """The pair as in ``--compare``."""
        return f"{self.ordering}+{self.placer}"


@dataclass(frozen=True, slots=True)
class TaskReplay:
    """What to replay."""

    source: TaskSource
    pairs: tuple[PolicyPair, ...]
    rules: DispatchRules = field(default_factory=DispatchRules)
    seeds: tuple[int, ...] = (0,)
    """Seeds of drawn sets; a recorded trace has one."""


@dataclass(frozen=True, slots=True)
class PairRun:
    """One pair of policies on one set of tasks."""

    pair: PolicyPair
    seed: int
    figures: TaskRunFigures


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of all runs, and the first seed's in full."""

    replay: TaskReplay
    trace: TaskTrace
    """Trace of the first seed."""
    runs: tuple[PairRun, ...]
    """Figures by pair, then by seed."""
    shown: tuple[TaskRunResult, ...]
    """Outcomes by pair, of the first seed."""

    def of(self, pair: PolicyPair) -> tuple[TaskRunFigures, ...]:
        """Figures of a pair, by seed."""
        return tuple(run.figures for run in self.runs if run.pair == pair)


def parse_pair(text: str) -> PolicyPair:
    """Parse ``ordering+placement``; raises ``ConfigError``, and ``UnknownPolicy`` for unknown names."""
    ordering, plus, placer = text.strip().partition("+")
    if not plus or not ordering or not placer:
        raise ConfigError("pair", f"{text.strip()!r} is not ORDERING+PLACEMENT, such as sjf+best-fit")
    pair = PolicyPair(ordering, placer)
    registry.ordering(pair.ordering)
    registry.placer(pair.placer)
    return pair


def play_all(replay: TaskReplay, workers: int, played: Callable[[int], None] = lambda total: None) -> Compared:
    """Run every pair on every seed's tasks; ``played`` is called after each run with the number of runs.

    Raises what reading and running raise (``MirageError``), ``ConfigError`` for missing or duplicate seeds or
    pairs.
    """
    check(replay)
    trace, _ = _read(replay.source, replay.seeds[0])
    runs, shown = [], []
    places = [(replay, pair, seed) for pair in replay.pairs for seed in replay.seeds]
    for (_, pair, seed), (figures, outcome) in zip(places, run_apart(_play, places, workers), strict=True):
        runs.append(PairRun(pair, seed, figures))
        shown += [outcome] if outcome is not None else []
        played(len(places))
    return Compared(replay, trace, tuple(runs), tuple(shown))


def check(replay: TaskReplay) -> None:
    """Raise ``ConfigError`` for an invalid replay."""
    for what, those in (("--compare", replay.pairs), ("--seeds", replay.seeds)):
        if not those or len(set(those)) < len(those):
            raise ConfigError(what, "expected at least one, without duplicates")
    if len(replay.seeds) > 1 and not replay.source.drawn:
        kind = replay.source.format
        raise ConfigError("--seeds", f"a recorded trace ({kind}) is the same for every seed; give one seed")


def _play(replay: TaskReplay, pair: PolicyPair, seed: int) -> tuple[TaskRunFigures, TaskRunResult | None]:
    """The figures, and for the first seed the whole outcome: others are not sent between processes."""
    trace, speeds = _read(replay.source, seed)
    pool = SimulatedPool(trace.tasks, trace.pool, speeds, replay.rules)
    outcome = pool.play(registry.ordering(pair.ordering), registry.placer(pair.placer))
    return outcome.figures, outcome if seed == replay.seeds[0] else None


@lru_cache(maxsize=4)
def _read(source: TaskSource, seed: int) -> tuple[TaskTrace, SpeedTable]:
    """Tasks of a seed, read once in each process for all pairs."""
    return read_source(source, seed)
