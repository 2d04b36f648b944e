"""The simulated system: requests in, time on, dispatches obeyed. The work is done by the compiled kernel."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.encode import encode, new_world
from mirage.allocation.inference.kernel import mainloop
from mirage.allocation.inference.kernel.layout import NEED_SPACE, OVER, STUCK, World
from mirage.allocation.inference.outcome import Outcome, Segments
from mirage.allocation.inference.rules import SharingRules
from mirage.domain.errors import MirageError
from mirage.domain.units import SystemView

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirage.domain.request import CostTable, RequestTable
    from mirage.domain.units import Dispatch, UnitSystem
    from mirage.ports import RequestPolicy

__all__ = ["SharingRules", "SimulatedSystem", "Stalled"]

_PATIENCE = 10_000
"""Periods in a row in which nothing runs, comes or begins, after which it is clear that it goes on like that."""


class Stalled(MirageError):
    """The policy never comes to an end: it begins none of the requests that wait."""


class SimulatedSystem:
    """Units, requests and a clock. Nothing happens but in ``advance`` and ``play``.

    Two systems with the same calls in the same order are equal in every event. Raises ``ImpossibleRequests`` for
    what cannot be simulated.
    """

    def __init__(self, requests: RequestTable, system: UnitSystem, costs: CostTable, rules: SharingRules) -> None:
        """All units are free; the clock is at 0."""
        self.requests, self.system, self.costs, self.rules = requests, system, costs, rules
        self._fixed = encode(requests, system, costs, rules)
        self._world = new_world(requests, system, costs)

    def copy(self) -> SimulatedSystem:
        """An independent system in the same state."""
        twin = copy(self)
        twin._world = World(*(_copied(table) for table in self._world))
        return twin

    @property
    def now(self) -> float:
        """The clock (s)."""
        return float(self._world.sim["now"][0])

    def advance(self, until: float = np.inf) -> bool:
        """Go to the next instant at which a request waits beside a free unit after something has happened.

        At most to ``until``. False when all is done. Raises ``Stalled`` where requests wait for which nothing will
        ever change.
        """
        return self._repeat(lambda: mainloop.advance(self._fixed, self._world, float(until))) != OVER

    def view(self) -> SystemView:
        """What a policy sees now. Some of its arrays are the system's own, and change with it."""
        world, sim, requests = self._world, self._world.sim[0], self.requests
        ready = world.ready[sim["head"] : sim["head"] + sim["ready"]]
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
        """Begin pieces. Raises ``ValueError`` where that cannot be; what stands before it has then begun."""
        world, sim = self._world, self._world.sim[0]
        sim["decisions"] += 1
        if not len(dispatch.ready):
            return
        ready = world.ready[sim["head"] : sim["head"] + sim["ready"]]
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

    def play(self, policy: RequestPolicy) -> Outcome:
        """Run to the end by a policy. Raises ``Stalled`` where it never comes to one."""
        policy.begin()
        self._play(policy)
        return self.outcome()

    def _play(self, policy: RequestPolicy) -> None:
        """Ask it at every instant at which something may be decided."""
        idle, more, period = 0, True, policy.period or np.inf
        while more:
            if self.is_to_decide:
                self.dispatch(policy.decide(self.view()))
            idle = 0 if self._goes_on() else idle + 1
            if idle > _PATIENCE:
                self._refuse_stall()
            more = self.advance(self.now + period)

    @property
    def is_to_decide(self) -> bool:
        """Whether a request waits beside a free unit."""
        sim = self._world.sim[0]
        return bool(sim["ready"] > 0 and sim["busy"] < len(self.system.names))

    def _goes_on(self) -> bool:
        """Whether something runs, or is still to come."""
        sim = self._world.sim[0]
        return bool(sim["busy"] > 0 or sim["arrived"] < len(self.requests))

    def outcome(self) -> Outcome:
        """What has come of it so far."""
        world, sim = self._world, self._world.sim[0]
        log = world.log[: sim["log"]].copy()
        return Outcome(
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
            segments=Segments(log["request"], log["piece"], log["unit"], log["begin"], log["end"]),
        )

    def _repeat(self, run: Callable[[], int]) -> int:
        """Call ``run``, given more space as often as it takes; what it answers then."""
        while (answer := run()) == NEED_SPACE:
            self._grow()
        if answer == STUCK:
            self._refuse_stall()
        return answer

    def _grow(self) -> None:
        """Make room for twice as many ready requests and segments, where they are short of it."""
        world, sim = self._world, self._world.sim[0]
        if 4 * sim["ready"] > len(world.ready):
            world = world._replace(ready=_longer(world.ready))
        if 2 * sim["log"] > len(world.log):
            world = world._replace(log=_longer(world.log))
        self._world = world

    def _refuse_stall(self) -> None:
        world, sim = self._world, self._world.sim[0]
        first = world.ready[sim["head"] : sim["head"] + 5].tolist()
        raise Stalled(f"{sim['ready']} requests wait, nothing runs, and none of them is begun: {first}, ...")


def _longer(table: NDArray[np.generic]) -> NDArray[np.generic]:
    longer = np.zeros(2 * len(table), dtype=table.dtype)
    longer[: len(table)] = table
    return longer


def _copied(table: NDArray[np.generic]) -> NDArray[np.generic]:
    """Records are copied as bytes: field by field takes ten times as long."""
    if table.dtype.names is None:
        return table.copy()
    return table.view(np.uint8).copy().view(table.dtype)
