"""Dependencies of the agent, and what it keeps from one cycle to the next.

It keeps the steps that it monitors, the nodes that reject steps repeatedly, and the state at the last decision:
policies are asked after task events and after each preemption quantum, as in the simulated pool.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mirage.allocation.engine.judging import seconds_ran

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from mirage.allocation.ddl.dispatch import Moves
    from mirage.allocation.engine.agent_runs import Jobs
    from mirage.allocation.engine.entries import Stopping
    from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
    from mirage.allocation.engine.steps import Engine, StartedStep
    from mirage.domain.pool import PoolView


@dataclass(slots=True)
class ScheduleTriggers:
    """The state at the last decision."""

    quantum: float = math.inf
    """Seconds after which the next decision is due though nothing has happened."""
    _seen: Hashable = None
    _at: float = -math.inf

    def is_due(self, now: float, seen: Hashable) -> bool:
        """Whether the state has changed, or a quantum is over."""
        return seen != self._seen or now >= self.next_instant

    def note(self, now: float, seen: Hashable) -> None:
        """Note a decision; ``seen``: the state afterwards."""
        self._at, self._seen = now, seen

    @property
    def next_instant(self) -> float:
        """When the current quantum ends."""
        return self._at + self.quantum


_MOST = 3


@dataclass(slots=True)
class Refusals:
    """Rejections in a row, by node."""

    nodes: tuple[str, ...]
    _counts: Counter[str] = field(default_factory=Counter)

    def note(self, node: str, why: str) -> str:
        """Count a rejection and its reason, or a granted step. Returns why the node gets no more steps, or "".

        If every node rejects, the nodes are not the cause.
        """
        self._counts[node] = self._counts[node] + 1 if why else 0
        others = any(self._counts[other] == 0 for other in self.nodes if other != node)
        blamed = self._counts[node] >= _MOST and others
        return f"the node rejected {self._counts[node]} steps in a row: {why}" if blamed else ""


class Decide(Protocol):
    """The policy: which tasks start where now."""

    def __call__(self, view: PoolView) -> Moves:
        """See ``mirage.allocation.ddl.dispatch``."""


@dataclass(slots=True)
class Running:
    """An attempt that this agent run monitors."""

    row: int
    attempt: int
    step: StartedStep
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
class AgentDependencies:
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
class AgentSettings:
    """Settings of this run."""

    decide: Decide
    preempt: bool = False
    quantum: float = math.inf
    """Seconds between two decisions while any task waits, though nothing has happened."""
