"""Dependencies of the agent, and what it keeps of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage.allocation.engine.judging import seconds_ran

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.ddl.dispatch import Moves
    from mirage.allocation.engine.entries import Stopping
    from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
    from mirage.allocation.engine.lives import Jobs
    from mirage.allocation.engine.steps import Engine, Step
    from mirage.domain.pool import PoolView


class Decide(Protocol):
    """The policy: which tasks start where now."""

    def __call__(self, view: PoolView) -> Moves:
        """See ``mirage.allocation.ddl.dispatch``."""


@dataclass(slots=True)
class Running:
    """An attempt that this agent run monitors."""

    row: int
    attempt: int
    step: Step
    start: float
    nodes: tuple[str, ...]
    stopping: Stopping | None = None
    kill_at: float = math.inf
    kills: int = 0
    """How often it was killed; processes that survive this may stay indefinitely."""
    adopted: bool = False
    """Whether an earlier agent has started it."""

    @property
    def leaves(self) -> bool:
        """Whether its devices will soon be free."""
        return self.stopping is not None and self.kills < 2

    @property
    def yields(self) -> bool:
        """Whether it is being preempted, and will wait again."""
        return self.leaves and self.stopping is not None and self.stopping.yields


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside that the agent uses."""

    engine: Engine
    folder: StateFolder
    journal: JournalWriter
    reader: JournalReader
    clock: Callable[[], float]
    jobs: Jobs
    say: Callable[[str], None]

    def ran(self, each: Running, now: float, end: float) -> float:
        """Seconds that the attempt's command had in a link that ends at ``end``; see ``seconds_ran``."""
        return seconds_ran(each.start, self.engine.began(each.step), now, each.stopping, end)


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of this run."""

    decide: Decide
    preempt: bool = False
    quantum: float = math.inf
    """Seconds between two decisions while any task waits, though nothing has happened."""
