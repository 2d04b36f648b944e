"""Slow actions delay only their owner: the loop's waiting time is bounded per owner and in total.

``ByOrder`` sends actions and file checks as requests to another process, which runs them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING

from mirage.backends.agent_requests import (
    LONGEST_TEXT,
    AgentResponse,
    CancelJob,
    CheckFiles,
    SignalJob,
    UpdateJob,
    describe,
)
from mirage.backends.background_files import BackgroundFiles, CheckLimits
from mirage.backends.user_side import carry_out
from mirage.domain.errors import ClusterUnavailable, MirageError, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.files import FileState, Presence
from mirage.domain.job import JobRequest
from mirage.domain.link import NO_JOB
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.agent_requests import Act
    from mirage.domain.job import JobChange, JobId, SignalReach
    from mirage.ports import Actuator


def files_by_order(ask: Callable[[str, Act], AgentResponse], limits: CheckLimits) -> BackgroundFiles:
    """Files that ``ask``, as in ``ByOrder``, has checked in their owner's name."""

    def check(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        try:
            answer = ask(owner, CheckFiles(paths))
            answer.job()
        except MirageError as error:
            return (FileState(Presence.UNKNOWN, one_line(str(error), LONGEST_TEXT)),) * len(paths)
        if len(answer.files) != len(paths):
            text = f"{owner}: the answer is about {len(answer.files)} files instead of {len(paths)}"
            return (FileState(Presence.UNKNOWN, text),) * len(paths)
        return answer.files

    return BackgroundFiles(check, limits=limits)


_LOG = logging.getLogger(__name__)
_WITHDRAWAL = 1.0
"""Seconds until an act that was withdrawn before it began has ended."""
_TAKEN_WITHIN = 1.0
"""Seconds in which a connected process begins an action; an action that had less time is not withdrawn."""
_KEPT, _MOST_KEPT = 600.0, 64
"""Seconds for which a result is kept that came late, and of how many acts of one owner."""
_MOST_IDLE = 1_000
"""Owners of whom something is remembered though nothing is in progress."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Timeouts and pauses between actions, in seconds of real time."""

    share: float = 10.0
    """Maximum waiting time of the caller for all actions of one owner, s, ..."""
    every: float = 60.0
    """... in this many seconds."""
    together: float = 5.0
    """Maximum waiting time for the actions of all owners, s, each at most half of the rest, ..."""
    together_every: float = 30.0
    """... in this many seconds."""
    pause: float = 60.0
    """Pause of an owner after an action that timed out, s; it doubles each time, ..."""
    longest_pause: float = 3_600.0
    """... up to this."""
    under_way: int = 64
    """Acts that have not ended, of all owners."""


@dataclass(slots=True)
class _Turns:
    """Waiting and running actions of one owner."""

    running: str = ""
    """The act that has not ended."""
    used: float = 0.0
    """Seconds that the caller has waited, less what time has given back by ``at``."""
    at: float = float("-inf")
    unanswered: int = 0
    """In a row."""
    not_before: float = float("-inf")
    late: dict[_Key, _Late] = field(default_factory=dict)
    """Results of actions that timed out."""


@dataclass(slots=True)
class _Turn:
    """One action and how it ended."""

    answer: AgentResponse | None = None
    error: Exception | None = None
    over: bool = False
    awaited: bool = True


@dataclass(frozen=True, slots=True)
class _Late:
    """Result of an action that timed out, without its script: scripts of many users would fill the memory."""

    turn: _Turn
    act: Act | None
    """``None``: a link that is submitted is the same whatever it waits for."""
    at: float
    """When it ended."""


_Key = tuple[type, object]
_LIMITS = TurnLimits()


class OwnerTurns:
    """``ask`` of ``ByOrder`` with a bound on how long one owner's process can hold up the caller.

    An action that takes longer continues in a separate thread, without the caller: the next snapshot shows its
    result. The same action requested again receives that result instead of a second run. Until it ends no other
    action starts for its owner; actions of other owners continue. The time for all owners together is bounded as
    well: slow ones use it up, and less is left for each. Safe to use from any thread.
    """

    def __init__(
        self,
        ask: Callable[[str, Act], AgentResponse],
        limits: TurnLimits = _LIMITS,
        stopwatch: Callable[[], float] = time.monotonic,
        withdraw: Callable[[str], bool] | None = None,
        behind: str = "",
    ) -> None:
        """``withdraw`` takes back what has not begun for an owner, so that its ``ask`` raises ``NotPermitted``.

        It returns whether there was any. ``behind`` names what carries the acts out, for people; empty: a process
        of the owner.
        """
        self._behind = behind
        self._ask, self._withdraw, self._limits, self._stopwatch = ask, withdraw, limits, stopwatch
        self._changed = Condition()
        self._owners: defaultdict[str, _Turns] = defaultdict(_Turns)
        self._under_way = 0
        self._used, self._used_at = 0.0, stopwatch()
        """Seconds that the caller has waited for all owners, less what time has given back since."""

    def __call__(self, owner: str, act: Act) -> AgentResponse:
        """Have it done and wait for the answer as long as the shares of the owner and of all last.

        Raises ``NotPermitted`` where nothing was begun, ``ClusterUnavailable`` where the act is still in progress,
        and what ``ask`` raises.
        """
        turn = _Turn()
        with self._changed:
            turns = self._owners[owner]
            began = self._stopwatch()
            if (late := _result_of(turns, act, began)) is not None:
                return _outcome(owner, act, late)
            left = self._begin(owner, turns, act, began)
            try:
                Thread(target=self._run, args=(owner, act, turn), name=f"act-{owner}", daemon=True).start()
            except RuntimeError:
                self._end(turns)
                raise NotPermitted(f"{owner}: not started: the system has no thread left for it") from None
            self._wait(owner, turn, left, turns.used + left >= self._limits.share)
            waited = self._stopwatch() - began
            turns.used += waited
            self._used += waited
            turn.awaited = turn.over
        return _outcome(owner, act, turn)

    def _wait(self, owner: str, turn: _Turn, seconds: float, whole: bool) -> None:
        """``whole``: it is all that the owner has."""
        if self._changed.wait_for(lambda: turn.over, seconds) or self._withdraw is None:
            return
        if (whole or seconds >= _TAKEN_WITHIN) and self._withdraw(owner):
            self._changed.wait_for(lambda: turn.over, _WITHDRAWAL)

    def _begin(self, owner: str, turns: _Turns, act: Act, now: float) -> float:
        """Seconds to wait for it. Raises ``NotPermitted``."""
        limits = self._limits
        turns.used = max(0.0, turns.used - (now - turns.at) * limits.share / limits.every)
        turns.at = now
        if turns.running:
            raise NotPermitted(f"{owner}: not started: an earlier operation is still running: {turns.running}")
        if now < turns.not_before:
            behind = self._behind or f"the agent or helper process of {owner}"
            timed_out = f"{turns.unanswered} operations in a row timed out"
            raise NotPermitted(f"{owner}: not started: {timed_out}; check {behind}")
        if turns.used >= limits.share:
            text = (
                f"operations of this user took {limits.share:g} s within {limits.every:g} s; a later cycle retries"
            )
            raise NotPermitted(f"{owner}: not started: {text}")
        if self._under_way >= limits.under_way:
            raise NotPermitted(
                f"{owner}: not started: {self._under_way} operations of all users are still running"
            )
        turns.running = describe(act)
        self._under_way += 1
        self._used = max(0.0, self._used - (now - self._used_at) * limits.together / limits.together_every)
        self._used_at = now
        return min(limits.share - turns.used, max(0.0, limits.together - self._used) / 2)

    def _run(self, owner: str, act: Act, turn: _Turn) -> None:
        try:
            turn.answer = self._ask(owner, act)
        except Exception as error:
            turn.error = error
        with self._changed:
            turns = self._owners[owner]
            self._end(turns)
            late = not turn.awaited
            if late and isinstance(turn.error, ClusterUnavailable):
                turns.unanswered += 1
                pause = self._limits.pause * 2 ** min(turns.unanswered - 1, 30)
                turns.not_before = self._stopwatch() + min(pause, self._limits.longest_pause)
            else:
                turns.unanswered = 0
                if late:
                    _keep(turns, act, turn, self._stopwatch())
            turn.over = True
            self._forget()
            self._changed.notify_all()
        if late:
            _LOG.warning(
                "event=act_ended_late user=%s act=%r error=%r", owner, describe(act), str(turn.error or "")
            )

    def _end(self, turns: _Turns) -> None:
        turns.running = ""
        self._under_way -= 1

    def _forget(self) -> None:
        """Owners are as many as accounts; of most of them nothing need be known."""
        now = self._stopwatch()
        if len(self._owners) > _MOST_IDLE:
            for owner in [o for o, turns in self._owners.items() if self._is_idle(turns, now)]:
                del self._owners[owner]

    def _is_idle(self, turns: _Turns, now: float) -> bool:
        busy = turns.running or any(now - late.at < _KEPT for late in turns.late.values())
        return not busy and now >= turns.not_before and now - turns.at > self._limits.every


def _key(act: Act) -> _Key:
    """The same for two acts of which the later replaces the earlier."""
    if isinstance(act, JobRequest):
        return JobRequest, act.tag
    return type(act), act.paths if isinstance(act, CheckFiles) else act.job_id


def _keep(turns: _Turns, act: Act, turn: _Turn, now: float) -> None:
    _drop_tracebacks(turn.error)
    turns.late[_key(act)] = _Late(turn, None if isinstance(act, JobRequest) else act, now)
    if len(turns.late) > _MOST_KEPT:
        del turns.late[next(iter(turns.late))]


def _drop_tracebacks(error: BaseException | None) -> None:
    """They hold the act, by the variables of each call."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _result_of(turns: _Turns, act: Act, now: float) -> _Turn | None:
    """Late result of this action, reported once."""
    found = turns.late.pop(_key(act), None)
    if found is None or now - found.at > _KEPT or found.act not in (None, act):
        return None
    return found.turn


def _outcome(owner: str, act: Act, turn: _Turn) -> AgentResponse:
    if turn.error is not None:
        raise turn.error
    if turn.answer is None:
        raise ClusterUnavailable(
            f"{owner}: no result yet of: {describe(act)}; the next query of the queue shows the outcome"
        )
    return turn.answer


class ByOrder:
    """An ``Actuator`` over ``ask``, which has an act done in its owner's name and brings the answer.

    ``ask`` raises ``NotPermitted`` where nothing has happened, ``ClusterUnavailable`` where something may have. A
    process of the owner's stands behind it, and may hang: see ``OwnerTurns``.
    """

    def __init__(
        self,
        ask: Callable[[str, Act], AgentResponse],
        withdraw: Callable[[str], bool] | None = None,
        behind: str = "",
        limits: TurnLimits | None = None,
    ) -> None:
        self._ask = OwnerTurns(ask, limits or TurnLimits(), withdraw=withdraw, behind=behind)

    def submit(self, request: JobRequest) -> JobId:
        """Have it submitted in the name of ``request.user``."""
        job_id = self._outcome(request.user, request, UnknownJob)
        if job_id == NO_JOB:
            raise ClusterUnavailable(f"{request.user}: the answer to {describe(request)} has no job ID")
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Request a cancellation on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, CancelJob(job_id), SubmissionRejected)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Request a change on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, UpdateJob(job_id, change), SubmissionRejected)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Request a signal on the owner's side; raises ``ClusterUnavailable`` if the answer does not fit."""
        self._outcome(owner, SignalJob(job_id, signal, reach), SubmissionRejected)

    def _outcome(self, owner: str, act: Act, unfit: type[MirageError]) -> JobId:
        """The ID of the job submitted; an answer that no such act can have leaves the outcome unknown."""
        try:
            return self._ask(owner, act).job()
        except unfit as error:
            raise ClusterUnavailable(f"{owner}: the answer to {describe(act)} does not fit: {error}") from None


class InTurns(ByOrder):
    """``actuator``, each act in a thread that is waited for as ``OwnerTurns`` says; raises what it raises.

    ``actuator`` must be safe to use from several threads; ``behind`` says whom it asks, for people.
    """

    def __init__(self, actuator: Actuator, behind: str) -> None:
        super().__init__(lambda owner, act: carry_out(act, owner, actuator), behind=behind)
