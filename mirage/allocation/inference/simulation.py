"""The simulated system: adds requests, advances time, executes dispatches. The compiled kernel does the work."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.encode import encode, new_world, without_delay
from mirage.allocation.inference.kernel import mainloop, playing
from mirage.allocation.inference.kernel.layout import NEED_SPACE, OVER, STUCK, WRONG, SystemState
from mirage.allocation.inference.kernel.playing import RequestHeaps, play_in_lines
from mirage.allocation.inference.outcome import RequestRunResult, SegmentLog
from mirage.allocation.inference.rules import SharingRules
from mirage.allocation.inference.scores import ScoredPolicy
from mirage.domain.errors import MirageError
from mirage.domain.inference import SystemView

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirage.allocation.inference.compiled_policies import CompiledPolicy
    from mirage.allocation.inference.kernel.layout import DispatchDraft
    from mirage.allocation.inference.scores import RequestScores
    from mirage.domain.inference import CostTable, DeviceSet, Dispatch, RequestTable
    from mirage.ports import RequestPolicy

__all__ = ["NothingBegun", "SharingRules", "SimulatedSystem"]

_PATIENCE = 10_000
"""Periods in a row without any event after which the run counts as stalled."""


class NothingBegun(MirageError):
    """The policy never ends: it begins none of the waiting requests."""


class SimulatedSystem:
    """Units, requests and a clock. Nothing happens outside of ``advance`` and ``play``.

    Two systems with the same calls in the same order are equal in every event. Raises ``ImpossibleRequests`` for
    what cannot be simulated.
    """

    def __init__(self, requests: RequestTable, system: DeviceSet, costs: CostTable, rules: SharingRules) -> None:
        """All units are free; the clock is at 0."""
        self.requests, self.system, self.costs, self.rules = requests, system, costs, rules
        self._fixed = encode(requests, system, costs, rules)
        self._undelayed = without_delay(self._fixed)
        self._world = new_world(requests, system, costs)
        self._working: DispatchDraft | None = None

    def copy(self) -> SimulatedSystem:
        """An independent system in the same state."""
        twin = copy(self)
        twin._world = SystemState(*(_copied(table) for table in self._world))
        twin._working = None
        return twin

    @property
    def now(self) -> float:
        """The clock (s)."""
        return float(self._world.sim["now"][0])

    def advance(self, until: float = np.inf) -> bool:
        """Go to the next time at which, after an event, a request waits and a unit is free.

        At most to ``until``. Returns ``False`` when all is done. Raises ``NothingBegun`` where requests wait and
        nothing will ever change.
        """
        return self._repeat(lambda: mainloop.advance(self._fixed, self._world, float(until))) != OVER

    def view(self) -> SystemView:
        """The policy's view. Some of its arrays belong to the system and change with it."""
        world, sim, requests, ready = self._world, self._world.sim[0], self.requests, self._ready()
        busy = world.running >= 0
        running = np.where(busy, world.running, 0)
        return SystemView(
            now=float(sim["now"]),
            system=self.system,
            costs=self.costs,
            request=ready,
            model=requests.model[ready],
            piece=world.piece[ready],
            tenant=requests.tenant[ready],
            arrival=requests.arrival[ready],
            deadline=requests.deadline[ready],
            weight=requests.weight[ready],
            ready_since=world.ready_since[ready],
            served=world.served[ready],
            running=world.running,
            running_piece=np.where(busy, world.piece[running], -1),
            running_deadline=np.where(busy, requests.deadline[running], np.inf),
            running_weight=np.where(busy, requests.weight[running], 0.0),
            free_at=world.free_at,
            drawn=world.drawn,
            tenant_ended=world.tenant_ended,
            tenant_kept=world.tenant_kept,
        )

    def dispatch(self, dispatch: Dispatch) -> None:
        """Begin segments. Raises ``ValueError`` for an impossible one; those before it have then begun."""
        world, ready = self._world, self._ready()
        world.sim["decisions"] += 1
        if not len(dispatch.ready):
            return
        if dispatch.ready.min() < 0 or dispatch.ready.max() >= len(ready):
            raise ValueError(f"rows {dispatch.ready} of {len(ready)} ready requests")
        wrong = mainloop.obey(
            self._fixed,
            world,
            ready[dispatch.ready].astype(np.int32),
            dispatch.unit.astype(np.int32),
            len(dispatch.ready),
        )
        if wrong >= 0:
            raise ValueError(f"row {dispatch.ready[wrong]} cannot begin on unit {dispatch.unit[wrong]}")

    def follow(self, scores: RequestScores, parameters: NDArray[np.float64], until: float) -> bool:
        """Run to ``until`` by scores of the present view that are kept by request; compiled as a whole.

        Returns ``False`` when all is done. Counts as one decision; matching the scores costs nothing more.
        """
        self._world.sim["decisions"] += 1
        self._keep(self._present(), scores)
        return self._follow(parameters, until)

    def play(self, policy: RequestPolicy) -> RequestRunResult:
        """Run to the end by a policy. Raises ``NothingBegun`` where it never ends.

        Compiled as a whole for compiled policies, and from one period to the next for those with kept scores.
        """
        from mirage.allocation.inference.compiled_policies import CompiledPolicy

        policy.begin()
        if isinstance(policy, CompiledPolicy):
            self._play_compiled(policy)
        elif isinstance(policy, ScoredPolicy):
            self._play_scored(policy)
        else:
            self._play(policy)
        return self.outcome()

    def _play(self, policy: RequestPolicy) -> None:
        """Call it at every time at which a decision is possible."""
        more, patience, period = True, _PATIENCE, policy.period or np.inf
        while more:
            if self.is_to_decide:
                self.dispatch(policy.decide(self.view()))
            patience = self._lose(patience)
            more = self.advance(self.now + period)

    def _play_compiled(self, policy: CompiledPolicy) -> None:
        if policy.keeps_order and policy.period == 0:
            self._play_in_lines(policy)
            return
        draft, period = self._draft(), policy.period or np.inf
        code, parameters = policy.code, policy.parameters
        self._repeat(lambda: playing.play(self._fixed, self._world, draft, code, parameters, period))

    def _play_in_lines(self, policy: CompiledPolicy) -> None:
        count = len(self.requests)
        lines = RequestHeaps(
            key=np.zeros(count),
            heap=np.zeros((2, count), dtype=np.int32),
            size=np.zeros(2, dtype=np.int64),
            aside=np.zeros(count, dtype=np.int32),
            bandwidth=float(self.system.bandwidth) if policy.spares_bandwidth else np.inf,
        )
        ready, code, late_last = self._ready(), policy.code, policy.puts_late_last
        fresh = np.zeros(count, dtype=np.int32)
        fresh[: len(ready)] = ready
        self._world.sim["fresh"] = len(ready)
        self._world = self._world._replace(fresh=fresh)
        self._repeat(lambda: play_in_lines(self._fixed, self._world, lines, code, late_last))

    def _play_scored(self, policy: ScoredPolicy) -> None:
        """Decide at each tick of its period. Until ``decision_seconds`` later, the old scores apply."""
        more, patience, tick = True, _PATIENCE, self.now
        while more:
            if self._world.sim["ready"][0] > 0:
                present, scores = self._present(), policy.scores(self.view())
                self._world.sim["decisions"] += 1
                self._follow(policy.parameters, self.now + self.rules.decision_seconds)
                self._keep(present, scores)
            patience = self._lose(patience)
            tick += policy.period
            more = self._follow(policy.parameters, tick)

    def _follow(self, parameters: NDArray[np.float64], until: float) -> bool:
        self._reserve_scores()
        draft, undelayed = self._draft(), self._undelayed
        return (
            self._repeat(lambda: playing.follow(undelayed, self._world, draft, parameters, float(until))) != OVER
        )

    def _present(self) -> NDArray[np.int64]:
        """The ready requests, then the running ones."""
        return np.concatenate((self._ready(), self._world.running[self._world.running >= 0]))

    def _keep(self, present: NDArray[np.int64], scores: RequestScores) -> None:
        self._reserve_scores()
        self._world.kept[present[scores.rows]] = scores.kept
        self._world.coming[:] = scores.coming

    def _reserve_scores(self) -> None:
        if len(self._world.kept) < len(self.requests):
            kept = np.zeros((len(self.requests), self._world.kept.shape[1]))
            self._world = self._world._replace(kept=kept)

    def _ready(self) -> NDArray[np.int64]:
        sim = self._world.sim[0]
        return self._world.ready[sim["head"] : sim["head"] + sim["ready"]]

    def _draft(self) -> DispatchDraft:
        """Working memory of compiled policies, created at the first use."""
        from mirage.allocation.inference.compiled_policies import new_draft

        if self._working is None:
            self._working = new_draft(len(self.requests), len(self.system.names))
        return self._working

    def _lose(self, patience: int) -> int:
        """Number of requests left. Raises ``NothingBegun`` where nothing has happened for too long."""
        sim = self._world.sim[0]
        if sim["busy"] or not sim["ready"] or sim["arrived"] < len(self.requests):
            return _PATIENCE
        if patience == 0:
            self._refuse_stall()
        return patience - 1

    @property
    def is_to_decide(self) -> bool:
        """Whether a request waits and a unit is free."""
        sim = self._world.sim[0]
        return bool(sim["ready"] > 0 and sim["busy"] < len(self.system.names))

    def outcome(self) -> RequestRunResult:
        """The results so far."""
        world, sim = self._world, self._world.sim[0]
        log = world.log[: sim["log"]].copy()
        return RequestRunResult(
            requests=self.requests,
            system=self.system,
            costs=self.costs,
            begin=world.begin.copy(),
            end=world.end.copy(),
            served=world.served.copy(),
            joules=world.energy.copy(),
            busy=world.units["busy"].copy(),
            bytes_moved=float(sim["bytes"]),
            policy_joules=float(sim["decisions"] * self.rules.decision_joules),
            pieces=int(sim["pieces"]),
            decisions=int(sim["decisions"]),
            segments=SegmentLog(log["request"], log["piece"], log["unit"], log["begin"], log["end"]),
        )

    def _repeat(self, run: Callable[[], int]) -> int:
        """Call ``run`` with memory that is enlarged as often as necessary; returns its result."""
        while (answer := run()) == NEED_SPACE:
            self._grow()
        if answer == STUCK:
            self._refuse_stall()
        if answer == WRONG:
            raise ValueError(
                f"at {self.now} s the policy chose a unit that is not free, or cannot run the segment"
            )
        return answer

    def _grow(self) -> None:
        """Double the capacity of ready requests and segments where it is short."""
        world, sim = self._world, self._world.sim[0]
        if 4 * sim["ready"] > len(world.ready):
            world = world._replace(ready=_longer(world.ready))
        if 2 * sim["log"] > len(world.log):
            world = world._replace(log=_longer(world.log))
        self._world = world

    def _refuse_stall(self) -> None:
        waiting = self._ready()
        raise NothingBegun(
            f"{len(waiting)} requests wait, nothing runs, none of them begins: {waiting[:5].tolist()}"
        )


def _longer(table: NDArray[np.generic]) -> NDArray[np.generic]:
    longer = np.zeros(2 * len(table), dtype=table.dtype)
    longer[: len(table)] = table
    return longer


def _copied(table: NDArray[np.generic]) -> NDArray[np.generic]:
    """Records are copied as bytes: field by field takes ten times as long."""
    if table.dtype.names is None:
        return table.copy()
    return table.view(np.uint8).copy().view(table.dtype)
