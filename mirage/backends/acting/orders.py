"""Orders to act in a user's name, the answers to them, and the desk where agents fetch and answer them.

An agent is a process of the user: whoever carries orders between the desk and the agent has made sure of that.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Condition
from typing import TYPE_CHECKING

from mirage.backends.acting.wire import BadOrder, dump, load
from mirage.domain.chain import NO_JOB
from mirage.domain.errors import (
    ClusterUnavailable,
    MirageError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.job import JobChange, JobId, JobRequest, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do for ``owner``: exactly one of the four acts is there."""

    order_id: str
    owner: str
    start_by: Seconds
    """Whoever has not begun by then (epoch, UTC) leaves it: by then somebody else may have been asked."""
    submit: JobRequest | None = None
    cancel: CancelJob | None = None
    update: UpdateJob | None = None
    signal: SignalJob | None = None

    @property
    def act(self) -> Act:
        """What to do."""
        (act,) = self._acts()
        return act

    @property
    def sentence(self) -> str:
        """The order in a few words, for logs."""
        return f"{describe(self.act)} for {self.owner}"

    def to_text(self) -> str:
        """As JSON: one line of ASCII, also where the environment holds bytes that are not UTF-8."""
        return dump(self)

    @classmethod
    def from_text(cls, text: str | bytes) -> Order:
        """The order that ``to_text`` wrote. Raises ``BadOrder``."""
        order = load(cls, text)
        if len(order._acts()) != 1:
            raise BadOrder("Order: expected exactly one of submit, cancel, update and signal")
        return order

    @classmethod
    def of(cls, act: Act, owner: str, start_by: Seconds) -> Order:
        """A new order, its id unlike any other, also across restarts."""
        order_id = uuid.uuid4().hex
        match act:
            case JobRequest():
                return cls(order_id, owner, start_by, submit=act)
            case CancelJob():
                return cls(order_id, owner, start_by, cancel=act)
            case UpdateJob():
                return cls(order_id, owner, start_by, update=act)
            case SignalJob():
                return cls(order_id, owner, start_by, signal=act)

    def _acts(self) -> list[Act]:
        acts = (self.submit, self.cancel, self.update, self.signal)
        return [act for act in acts if act is not None]


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel a pending or running job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Change a pending job."""

    job_id: JobId
    change: JobChange


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Send a running job a signal."""

    job_id: JobId
    signal: str
    batch_only: bool


Act = JobRequest | CancelJob | UpdateJob | SignalJob


def describe(act: Act) -> str:
    """An act in a few words; nothing of the script and the environment."""
    match act:
        case JobRequest():
            return f"submit {act.tag or act.name}"
        case CancelJob():
            return f"cancel job {act.job_id}"
        case UpdateJob():
            changed = {name: getattr(act.change, name) for name in ("held", "nice", "begin", "node_list")}
            words = [f"{name}={value}" for name, value in changed.items() if value is not None]
            return f"update job {act.job_id}: {' '.join(words)}"
        case SignalJob():
            return f"signal {act.signal} to job {act.job_id}"


class Verdict(Enum):
    """How an order went."""

    DONE = auto()
    REJECTED = auto()
    """Slurm refused the submission."""
    UNKNOWN_JOB = auto()
    NOT_PERMITTED = auto()
    UNAVAILABLE = auto()
    """Whether it happened is unknown."""
    TOO_LATE = auto()
    """It came too late and was not begun."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an order went, in a form that travels."""

    verdict: Verdict
    """Whether it was carried out."""
    job_id: JobId = NO_JOB
    """Of the job submitted."""
    reason: str = ""
    """REJECTED only: Slurm's reason."""
    text: str = ""
    """What Slurm said, where something went wrong."""

    def to_text(self) -> str:
        """As JSON: one line of ASCII."""
        return dump(self)

    @classmethod
    def from_text(cls, text: str | bytes) -> Answer:
        """The answer that ``to_text`` wrote. Raises ``BadOrder``."""
        return load(cls, text)

    @classmethod
    def failed(cls, error: MirageError) -> Answer:
        """The answer that says ``error``; errors without a verdict of their own leave the outcome unknown."""
        match error:
            case SubmissionRejected():
                return cls(Verdict.REJECTED, reason=error.reason, text=str(error))
            case UnknownJob():
                return cls(Verdict.UNKNOWN_JOB, text=str(error))
            case NotPermitted():
                return cls(Verdict.NOT_PERMITTED, text=str(error))
        return cls(Verdict.UNAVAILABLE, text=str(error))

    def job(self) -> JobId:
        """The id of the job submitted (``NO_JOB`` for other acts), or the error that the answer stands for."""
        match self.verdict:
            case Verdict.DONE:
                return self.job_id
            case Verdict.REJECTED:
                raise SubmissionRejected(self.reason, self.text.removeprefix(self.reason).removeprefix(": "))
            case Verdict.UNKNOWN_JOB:
                raise UnknownJob(self.text)
            case Verdict.NOT_PERMITTED | Verdict.TOO_LATE:
                raise NotPermitted(self.text)
            case Verdict.UNAVAILABLE:
                raise ClusterUnavailable(self.text)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the desk waits, in seconds.

    ``start`` and the agent's own time limit for ``sbatch`` together stay below the loop's ``settle``: an order
    that the loop has given up must not be begun after it has given a second one.
    """

    start: float = 10.0
    """An order not begun after so long is withdrawn."""
    answer: float = 60.0
    """An order not answered after so long has an unknown outcome."""
    presence: float = 15.0
    """An agent that has not been heard of for so long is gone."""


@dataclass(slots=True)
class _Slip:
    """One order on its way."""

    order: Order
    taken: bool = False
    answer: Answer | None = None


@dataclass(slots=True)
class _Counter:
    """What the desk knows of one user's agents."""

    waiting: int = 0
    """Agents that wait for an order now."""
    heard: float = float("-inf")
    """When one was last heard of, on the desk's stopwatch."""
    slips: list[_Slip] = field(default_factory=list)
    """Not taken yet, oldest first."""


_PATIENCE = Patience()


class OrderDesk:
    """Where the loop leaves orders and users' agents fetch them. Safe to use from any thread.

    An order is handed out at most once, and only to its owner's agents. ``record`` gets every order whose answer
    was not awaited any more, with that answer: it is kept for the journal and changes nothing.
    """

    def __init__(
        self,
        record: Callable[[str, str, Answer], None],
        patience: Patience = _PATIENCE,
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

    # The agents' side.

    def attach(self, user: str) -> None:
        """An agent of ``user`` says that it is there."""
        with self._changed:
            self._counters[user].heard = self._stopwatch()

    def next_order(self, user: str, timeout: float) -> Order | None:
        """The oldest order for ``user``, waiting for one for up to ``timeout`` seconds; ``None``: there is none.

        The caller delivers it: one that gets lost on the way is lost, so wait in short turns and look in between
        whether the agent is still connected.
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
            return slip.order

    def answer(self, user: str, order_id: str, answer: Answer) -> bool:
        """Leave the answer to an order; ``False``: nobody waits for it any more, it is only recorded.

        Raises ``NotPermitted`` where the order is another user's.
        """
        with self._changed:
            self._counters[user].heard = self._stopwatch()
            slip = self._out.get(order_id)
            if slip is not None and slip.order.owner != user:
                raise NotPermitted(f"order {order_id} is not for {user}")
            if slip is not None and slip.taken and slip.answer is None:
                slip.answer = answer
                self._changed.notify_all()
                return True
        self._record(user, order_id, answer)
        return False

    # The loop's side.

    def attached(self, user: str) -> bool:
        """Whether an agent of ``user`` waits for orders, or did a moment ago."""
        with self._changed:
            return self._present(user)

    def ask(self, owner: str, act: Act) -> Answer:
        """Have an agent of ``owner`` do it, and wait for the answer.

        Raises ``NotPermitted`` when there is no agent, or none took the order: then nothing has happened.
        Raises ``ClusterUnavailable`` when an agent took it and did not answer: then it may have happened.
        """
        with self._changed:
            if not self._present(owner):
                raise NotPermitted(_nobody(owner))
            slip = _Slip(Order.of(act, owner, int(self._now() + self._patience.start)))
            self._out[slip.order.order_id] = slip
            self._counters[owner].slips.append(slip)
            self._changed.notify_all()
            try:
                return self._await(slip)
            finally:
                del self._out[slip.order.order_id]

    def _await(self, slip: _Slip) -> Answer:
        owner, patience = slip.order.owner, self._patience
        if not self._changed.wait_for(lambda: slip.taken, patience.start):
            self._counters[owner].slips.remove(slip)
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
    return f"nobody can act for {owner}: {owner} must have `mirage agent` running"
