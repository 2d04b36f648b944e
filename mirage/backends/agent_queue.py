"""The queue of requests to the users' own agents: the loop adds them, agents fetch and answer them.

This mode needs no privilege, but a process of the user has to run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from threading import Condition
from typing import TYPE_CHECKING

from mirage.backends.agent_requests import AgentRequest, describe
from mirage.backends.owner_turns import ByOrder
from mirage.domain.errors import ClusterUnavailable, NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.agent_requests import Act, AgentResponse
    from mirage.backends.owner_turns import TurnLimits

_MOST_LATE = 100
"""Requests of one user that timed out and whose answers may still arrive."""


@dataclass(frozen=True, slots=True)
class QueueTimeouts:
    """Timeouts of the queue, in seconds.

    ``start`` and the agent's own time limit for ``sbatch`` together stay below the loop's ``settle``: a request
    that the loop has abandoned must not start after the loop has sent a second one.
    """

    start: float = 10.0
    """Time after which a request that no agent has begun is withdrawn."""
    answer: float = 60.0
    """Time after which the outcome of an unanswered request is unknown."""
    presence: float = 15.0
    """Time without contact after which an agent counts as gone."""


@dataclass(slots=True)
class _Slip:
    """A queued request, until its answer has arrived."""

    order: AgentRequest
    taken: bool = False
    answer: AgentResponse | None = None


@dataclass(slots=True)
class _Counter:
    """The state of one user's agents."""

    waiting: int = 0
    """Agents that wait for an order now."""
    heard: float = float("-inf")
    """Time of an agent's last contact, on the queue's stopwatch."""
    slips: list[_Slip] = field(default_factory=list)
    """Not taken yet, oldest first."""


_PATIENCE = QueueTimeouts()


class AgentQueue:
    """Queue of requests: the loop adds them, and users' agents fetch them. Safe to use from any thread.

    An order is handed out at most once, and only to its owner's agents. ``record`` gets every order whose answer
    came when it was not awaited any more, once, with that answer: it is kept for the journal and changes nothing.
    """

    def __init__(
        self,
        record: Callable[[str, str, AgentResponse], None],
        patience: QueueTimeouts = _PATIENCE,
        stopwatch: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._record = record
        self._patience = patience
        self._stopwatch = stopwatch
        self._now = now
        self._changed = Condition()
        self._counters: defaultdict[str, _Counter] = defaultdict(_Counter)
        self._out: dict[str, _Slip] = {}
        self._late: dict[str, tuple[str, int]] = {}
        """Timed-out requests without an answer: owners, and how many files the answers may name."""

    # The agents' side.

    def attach(self, user: str) -> None:
        """An agent of ``user`` says that it is there."""
        with self._changed:
            self._counters[user].heard = self._stopwatch()

    def next_order(self, user: str, timeout: float) -> AgentRequest | None:
        """The oldest request for ``user``; waits up to ``timeout`` seconds for one, then returns ``None``.

        The caller delivers it. A request that is lost on the way is not sent again, so use short timeouts and
        check between them whether the agent is still connected.
        """
        with self._changed:
            counter = self._counters[user]
            counter.waiting += 1
            try:
                self._changed.wait_for(lambda: counter.slips, timeout)
            finally:
                counter.waiting -= 1
                counter.heard = self._stopwatch()
            if not counter.slips:
                return None
            slip = counter.slips.pop(0)
            slip.taken = True
            self._changed.notify_all()
            return slip.order

    def find_unanswered(self, user: str, order_id: str) -> int | None:
        """Return how many files the answer to a request may name; ``None``: ``user`` has no such request.

        A request of another user counts as missing, in every respect.
        """
        with self._changed:
            self._counters[user].heard = self._stopwatch()
            slip = self._out.get(order_id)
            owner, files = (slip.order.owner, slip.order.files) if slip else self._late.get(order_id, (user, None))
            if owner != user:
                return None
            if slip is not None and (slip.answer is not None or not slip.taken):
                return None
            return files

    def answer(self, user: str, order_id: str, answer: AgentResponse) -> bool:
        """Leave the answer to an order; ``False``: the request has timed out."""
        with self._changed:
            if self.find_unanswered(user, order_id) is None:
                return False
            if (slip := self._out.get(order_id)) is not None:
                slip.answer = answer
                self._changed.notify_all()
                return True
            del self._late[order_id]
        self._record(user, order_id, answer)
        return False

    # The loop's side.

    def attached(self, user: str) -> bool:
        """Whether an agent of ``user`` waits for orders, or did a moment ago."""
        with self._changed:
            return self._present(user)

    def ask(self, owner: str, act: Act) -> AgentResponse:
        """Have an agent of ``owner`` do it, and wait for the answer.

        Raises ``NotPermitted`` when there is no agent, or none took the order: then nothing has happened.
        Raises ``ClusterUnavailable`` when an agent took it and did not answer: then it may have happened.
        """
        with self._changed:
            if not self._present(owner):
                raise NotPermitted(_nobody(owner))
            slip = _Slip(AgentRequest.of(act, owner, int(self._now() + self._patience.start)))
            self._out[slip.order.order_id] = slip
            self._counters[owner].slips.append(slip)
            self._changed.notify_all()
            try:
                return self._await(slip)
            finally:
                del self._out[slip.order.order_id]
                if slip.taken and slip.answer is None:
                    self._late[slip.order.order_id] = owner, slip.order.files
                    late = [order_id for order_id, (of, _) in self._late.items() if of == owner]
                    if len(late) > _MOST_LATE:
                        del self._late[late[0]]

    def withdraw(self, owner: str) -> bool:
        """Take back the orders that no agent of ``owner`` has taken, if any: ``ask`` raises ``NotPermitted``."""
        with self._changed:
            slips = self._counters[owner].slips
            found = bool(slips)
            slips.clear()
            self._changed.notify_all()
        return found

    def _await(self, slip: _Slip) -> AgentResponse:
        owner, patience = slip.order.owner, self._patience
        slips = self._counters[owner].slips
        self._changed.wait_for(lambda: slip not in slips, patience.start)
        if not slip.taken:
            slips[:] = [other for other in slips if other is not slip]
            raise NotPermitted(_nobody(owner))
        if not self._changed.wait_for(lambda: slip.answer is not None, patience.answer):
            raise ClusterUnavailable(
                f"the agent of {owner} was told to {describe(slip.order.act)} "
                f"and has not answered for {patience.answer:g} s"
            )
        assert slip.answer is not None
        return slip.answer

    def _present(self, user: str) -> bool:
        counter = self._counters[user]
        return counter.waiting > 0 or self._stopwatch() - counter.heard < self._patience.presence


def _nobody(owner: str) -> str:
    return f"no process can act for {owner}: {owner} must run `mirage agent`"


class AgentActuator(ByOrder):
    """An ``Actuator`` that puts requests into the agent queue and waits for the answers.

    ``NotPermitted`` while no agent of the owner is connected: nothing has happened then, and the next cycle may
    try again. ``ClusterUnavailable``: an agent took the request and did not answer; the action may have happened.
    """

    def __init__(self, desk: AgentQueue, limits: TurnLimits | None = None) -> None:
        super().__init__(desk.ask, desk.withdraw, limits=limits)
