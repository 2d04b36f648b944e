"""The simulated pool: adds tasks, advances time, executes placements. The compiled kernel does the work."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.dispatch import DispatchRules, Moves, dispatch
from mirage.allocation.ddl.encode import encode, linear_scores, most_parts, new_draft, refuse_misfits
from mirage.allocation.ddl.kernel import lifecycle, mainloop, operations
from mirage.allocation.ddl.kernel.layout import (
    DECIDE,
    NEED_SPACE,
    PART,
    RUNNING,
    SEGMENT,
    SIM,
    STATE,
    STUCK,
    THRASHING,
    PoolState,
    Queues,
    Room,
)
from mirage.allocation.ddl.kernel.mainloop import DecisionMemory, GatheredView, Ranking
from mirage.allocation.ddl.outcome import Segments, TaskRunResult
from mirage.allocation.ddl.placers import CompiledPlacer, new_placed
from mirage.domain.errors import MirageError
from mirage.domain.pool import PoolView

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirage.allocation.ddl.encode import LinearScores
    from mirage.allocation.ddl.kernel.layout import PoolConstants, Site
    from mirage.domain.pool import Placement, Pool, SpeedTable, TaskTable
    from mirage.ports import Ordering, Placer

__all__ = ["DispatchRules", "SimulatedPool", "Stalled"]


class Stalled(MirageError):
    """The policy never ends: it starts none of the waiting tasks, or preempts tasks indefinitely."""


class SimulatedPool:
    """A pool, its tasks and its clock. Nothing happens outside of ``advance`` and ``play``.

    Two pools with the same calls in the same order are equal in every event. Raises ``ImpossibleTasks`` for tasks
    that cannot be simulated, or do not fit into the empty pool.
    """

    def __init__(self, tasks: TaskTable, pool: Pool, speeds: SpeedTable, rules: DispatchRules) -> None:
        """Every node is up and free; the clock is at the first submission."""
        self.tasks, self.pool, self.speeds, self.rules = tasks, pool, speeds, rules
        self._fixed, self._site = encode(tasks, pool, speeds, rules)
        self._world = _new_world(tasks, pool, self._fixed, self._site)
        self._draft = new_draft(self._site)
        self._sight = _new_sight(tasks)
        room = Room(self._world.free, self._world.cpus, self._world.memory)
        nodes = operations.nodes_alone(self._site, room, self._draft, np.zeros(len(tasks), dtype=np.int64))
        refuse_misfits(tasks, nodes > 0)

    def copy(self) -> SimulatedPool:
        """An independent pool in the same state."""
        twin = copy(self)
        twin._world = PoolState(*(_copied(table) for table in self._world))
        twin._draft, twin._sight = new_draft(self._site), _new_sight(self.tasks)
        return twin

    @property
    def now(self) -> float:
        """The clock (s)."""
        return float(self._world.sim["now"][0])

    def advance(self) -> bool:
        """Go to the next time at which a task is pending after an arrival, an end or a quantum.

        Returns ``False`` when all is done. Raises ``Stalled`` where tasks wait and nothing will ever change.
        """
        return self._repeat(lambda: mainloop.advance(self._fixed, self._site, self._world)) == DECIDE

    def view(self) -> PoolView:
        """The policy's view. Its arrays belong to the pool and change with it."""
        world, sight, sim = self._world, self._sight, self._world.sim[0]
        candidates = mainloop.refresh(self._fixed, self._site, world, sight)
        pending = sight.candidates[:candidates] if self.rules.preempt else world.pending[: sim["pending"]]
        return PoolView(
            now=self.now,
            pool=self.pool,
            tasks=self.tasks,
            speeds=self.speeds,
            pending=pending,
            running=world.agenda[: sim["running"]],
            held_from=sight.held_from,
            held=sight.held[: sight.held_from[-1]],
            task_node=world.task_node,
            free=world.free,
            free_cpus=world.cpus,
            free_memory_mb=world.memory,
            served=world.served,
            remaining=world.remaining,
        )

    def start(self, placement: Placement) -> None:
        """Start a pending task. Raises ``ValueError`` where it cannot run there."""
        task, nodes = placement.task, placement.nodes
        node = int(nodes[0]) if len(nodes) else -1
        complaint = operations.start(
            self._fixed, self._site, self._world, self._draft, task, placement.devices.astype(np.int32), node
        )
        if complaint:
            raise ValueError(f"task {self.tasks.name[task]}: {operations.COMPLAINTS[complaint]}")

    def preempt(self, task: int) -> None:
        """Preempt a running task. Raises ``ValueError`` if it does not run or has no checkpoint."""
        if self._world.states[task]["status"] != RUNNING or not self.tasks.restart[task] >= 0:
            raise ValueError(
                f"task {self.tasks.name[task]}: does not run, or has no checkpoint from which to resume"
            )
        self._reserve()
        lifecycle.preempt(self._fixed, self._site, self._world, task)

    def play(self, ordering: Ordering, placer: Placer) -> TaskRunResult:
        """Run to the end with these policies. Raises ``Stalled`` where they never end.

        Compiled as a whole where the placement policy is built in and the scores are static or, with preemption,
        linear.
        """
        if not isinstance(placer, CompiledPlacer):
            self._play(ordering, placer)
        elif self.rules.preempt:
            self._play_with_preemption(ordering, placer)
        else:
            self._play_without(ordering, placer)
        return self.outcome()

    def _play(self, ordering: Ordering, placer: Placer) -> None:
        more = True
        while more:
            moves = (
                dispatch(self.view(), ordering, placer, self.rules) if self._world.sim["pending"][0] else Moves()
            )
            for task in moves.preemptions:
                self.preempt(task)
            for placement in moves.starts:
                self.start(placement)
            more = self.advance()

    def _play_without(self, ordering: Ordering, placer: CompiledPlacer) -> None:
        scores = ordering.static_scores(self.tasks)
        if scores is None:
            self._play(ordering, placer)
            return
        site = placer.site(self._site)
        lines, draft = _lines(self._fixed, site, scores), placer.draft(site)
        self._repeat(lambda: mainloop.play_in_order(self._fixed, site, self._world, draft, lines, placer.code))

    def _play_with_preemption(self, ordering: Ordering, placer: CompiledPlacer) -> None:
        scores = linear_scores(ordering, self.tasks)
        if scores is None:
            self._play(ordering, placer)
            return
        ranking, desk = _ranking(scores), self._desk()
        fixed, site, sight, code = self._fixed, placer.site(self._site), self._sight, placer.code
        draft = placer.draft(site)
        self._repeat(lambda: mainloop.play_by_score(fixed, site, self._world, draft, sight, ranking, desk, code))

    def _repeat(self, run: Callable[[], int]) -> int:
        """Call ``run`` with a log that is enlarged as often as necessary; returns its result."""
        while (answer := run()) == NEED_SPACE:
            self._grow()
        self._refuse_stall(answer)
        return answer

    def _desk(self) -> DecisionMemory:
        every = np.arange(len(self.tasks), dtype=np.int32)
        return DecisionMemory(
            room=Room(self._world.free.copy(), self._world.cpus.copy(), self._world.memory.copy()),
            roomy=Room(self._world.free.copy(), self._world.cpus.copy(), self._world.memory.copy()),
            kept=np.zeros(len(self.tasks), dtype=np.uint8),
            placed=new_placed(self._site, every),
            packed=new_placed(self._site, every),
        )

    def outcome(self) -> TaskRunResult:
        """The results so far."""
        world, sim = self._world, self._world.sim[0]
        mainloop.refresh(self._fixed, self._site, world, self._sight)
        states, log = world.states, world.log[: sim["log"]].copy()
        waited = sim["waiting"] * len(self.pool.device_node)
        return TaskRunResult(
            tasks=self.tasks,
            pool=self.pool,
            start=states["start"].copy(),
            end=np.where(states["status"] == operations.ENDED, states["end"], np.nan),
            served=world.served.copy(),
            preemptions=states["preemptions"].copy(),
            fee=states["fee"].copy(),
            segments=Segments(log["task"], log["device"], log["start"], log["end"]),
            fragmentation=float(sim["idle_waiting"] / waited) if waited > 0 else 0.0,
        )

    def _refuse_stall(self, answer: int) -> None:
        if answer == THRASHING:
            raise Stalled("tasks preempt one another repeatedly before any work is done; use a longer quantum")
        if answer == STUCK:
            pending = self._world.pending[: self._world.sim["pending"][0]]
            names = ", ".join(self.tasks.name[t] for t in pending[:5])
            raise Stalled(f"{len(pending)} tasks wait, nothing runs, and none of them starts: {names}")

    def _reserve(self) -> None:
        """Make room in the log for all devices in use."""
        sim = self._world.sim[0]
        if sim["log"] + sim["held"] > len(self._world.log):
            self._grow()

    def _grow(self) -> None:
        """Enlarge the log, enough for all devices in use."""
        log = self._world.log
        larger = np.zeros(2 * len(log) + int(self._world.sim["held"][0]), dtype=SEGMENT)
        larger[: len(log)] = log
        self._world = self._world._replace(log=larger)


def _new_world(tasks: TaskTable, pool: Pool, fixed: PoolConstants, site: Site) -> PoolState:
    count = len(tasks)
    states = np.zeros(count, dtype=STATE)
    states["left"], states["start"], states["end"] = tasks.work, np.nan, np.nan
    states["open"] = [len(set(those)) for those in tasks.after] or 0
    sim = np.zeros(1, dtype=SIM)
    sim["now"] = sim["decided"] = tasks.submit.min(initial=np.inf) if count else 0.0
    sim["free"] = len(pool.device_node)
    held = int(tasks.devices.sum())
    return PoolState(
        sim=sim,
        states=states,
        served=np.zeros(count),
        remaining=tasks.expected.astype(np.float64),
        task_node=np.full(count, -1, dtype=np.int32),
        pending=np.zeros(count, dtype=np.int32),
        fresh=np.zeros(count, dtype=np.int32),
        agenda=np.zeros(count, dtype=np.int32),
        free=np.ones(len(pool.device_node)),
        cpus=pool.cpus.astype(np.int32),
        memory=pool.memory_mb.astype(np.int64),
        held=np.zeros(held, dtype=np.int32),
        parts=np.zeros(int(most_parts(site).sum()), dtype=PART),
        first_part=np.full(len(pool.node_names), -1, dtype=np.int64),
        log=np.zeros(held, dtype=SEGMENT),
    )


def _new_sight(tasks: TaskTable) -> GatheredView:
    count = len(tasks)
    return GatheredView(
        candidates=np.zeros(count, dtype=np.int32),
        held_from=np.zeros(count + 1, dtype=np.int32),
        held=np.zeros(int(tasks.devices.sum()), dtype=np.int32),
    )


def _lines(fixed: PoolConstants, site: Site, scores: NDArray[np.float64]) -> Queues:
    """Empty heaps for an order by score, ties by submission."""
    count = len(scores)
    key = np.zeros(count, dtype=np.int32)
    key[fixed.arrivals[np.argsort(scores[fixed.arrivals], kind="stable")]] = np.arange(count)
    sizes = np.bincount(site.needs["likeness"], minlength=1)
    return Queues(
        key=key,
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        size=np.zeros(len(sizes), dtype=np.int64),
        heap=np.zeros(count, dtype=np.int32),
    )


def _ranking(scores: LinearScores) -> Ranking:
    count = len(scores.base)
    return Ranking(
        weights=np.stack([scores.base, scores.per_remaining, scores.per_served], axis=1),
        scores=np.zeros(count),
        order=np.zeros(count, dtype=np.int32),
        listed=np.zeros(count, dtype=np.uint8),
        size=np.zeros(1, dtype=np.int64),
    )


def _copied(table: np.ndarray) -> np.ndarray:
    """A copy made as bytes: numpy copies records field by field, ten times slower."""
    return table.view(np.uint8).copy().view(table.dtype) if table.dtype.names else table.copy()
