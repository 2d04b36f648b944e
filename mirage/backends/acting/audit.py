"""Audit of actions on users' jobs: one line for each attempt, whatever its outcome."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mirage.backends.acting.orders import Act, CancelJob, SignalJob, UpdateJob, describe
from mirage.domain.job import JobId, JobRequest
from mirage.domain.link import NO_JOB

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.job import JobChange, SignalReach
    from mirage.ports import Actuator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deed:
    """One action on behalf of a user, as the audit log records it."""

    owner: str
    """In whose name."""
    act: str
    """The attempted action, such as ``cancel job 17``."""
    job_id: JobId
    """``NO_JOB`` for a submission that gave none."""
    result: str
    """``done``, or why not: the error's kind and text."""
    tag: str = ""
    """Of the job that a submission was to make; empty: no submission."""


_SAID_AGAIN_AFTER = 3_600.0
_MOST_REMEMBERED = 10_000
"""Acts that failed last; with more of them all are forgotten."""


class Audited:
    """An ``Actuator`` that reports every act of ``actuator`` to ``record``, done or not.

    An act that keeps failing with the same kind of error is reported once an hour: without an agent every
    cycle has one for each chain of a user.
    """

    def __init__(
        self, actuator: Actuator, record: Callable[[Deed], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        """``now``: seconds of a monotonic clock."""
        self._actuator = actuator
        self._record = record
        self._now = now
        self._failed: dict[tuple[str, str], tuple[type[Exception], float]] = {}
        """By owner and act: the last failure reported, and when."""

    def submit(self, request: JobRequest) -> JobId:
        """Submit through the wrapped actuator and audit the outcome."""
        return self._told(request.user, request, NO_JOB, lambda: self._actuator.submit(request))

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel through the wrapped actuator and audit the outcome."""
        self._told(owner, CancelJob(job_id), job_id, lambda: self._actuator.cancel(job_id, owner))

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Update through the wrapped actuator and audit the outcome."""
        act = UpdateJob(job_id, change)
        self._told(owner, act, job_id, lambda: self._actuator.update(job_id, owner, change))

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal through the wrapped actuator and audit the outcome."""
        act = SignalJob(job_id, signal, reach)
        self._told(owner, act, job_id, lambda: self._actuator.signal(job_id, owner, signal, reach=reach))

    def _told(self, owner: str, act: Act, job_id: JobId, do: Callable[[], T]) -> T:
        tag, text = act.tag if isinstance(act, JobRequest) else "", describe(act)
        try:
            made = do()
        except Exception as error:
            if self._is_news(owner, text, type(error)):
                self._record(Deed(owner, text, job_id, f"{type(error).__name__}: {error}", tag))
            raise
        self._failed.pop((owner, text), None)
        self._record(Deed(owner, text, job_id or _submitted(made), "done", tag))
        return made

    def _is_news(self, owner: str, act: str, kind: type[Exception]) -> bool:
        now = self._now()
        if len(self._failed) >= _MOST_REMEMBERED:
            self._failed.clear()
        before, told = self._failed.get((owner, act), (None, 0.0))
        if before is kind and now - told < _SAID_AGAIN_AFTER:
            return False
        self._failed[owner, act] = kind, now
        return True


def _submitted(made: object) -> JobId:
    return JobId(made) if isinstance(made, int) else NO_JOB
