"""Actuators and clusters around others: act only while this daemon leads, write the audit log, measure polls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mirage.backends.agent_requests import Act, CancelJob, SignalJob, UpdateJob, describe
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import NotPermitted, StoreUnavailable
from mirage.domain.job import JobId, JobRequest
from mirage.domain.link import NO_IDENTITIES, NO_JOB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.backends.agent_requests import AgentResponse
    from mirage.backends.marked_jobs import Adopter
    from mirage.domain.job import JobChange, SignalReach
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator, Cluster


class InstrumentedCluster:
    """Passes each whole snapshot and its predecessor to ``seen``, and the real seconds of each try to ``took``.

    Exceptions of the listeners are not caught: the listeners are part of this program.
    """

    def __init__(
        self,
        cluster: Cluster,
        seen: Callable[[Snapshot | None, Snapshot], None],
        took: Callable[[float], None],
        links_seen: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """``links_seen`` gets the snapshots for which the queue was not read; ``None``: it is always read."""
        self._cluster = cluster
        self._seen = seen
        self._took = took
        self._links_seen = links_seen
        self._previous: Snapshot | None = None

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Take the wrapped cluster's snapshot; one without the queue gets that of the last whole snapshot.

        Only whole ones are passed to ``seen``: predictions are trained on the starts between them.
        """
        previous, links_seen = self._previous, self._links_seen
        whole = queue or previous is None or links_seen is None
        began = time.monotonic()
        try:
            snapshot = self._cluster.snapshot(queue=whole, expected=expected, identities=identities)
        finally:
            self._took(time.monotonic() - began)
        if not whole and previous is not None and links_seen is not None:
            # Who waited when first seen, waited: of links the next whole snapshot is compared with that.
            self._previous = replace(previous, links={**snapshot.links, **previous.links})
            snapshot = snapshot.with_queue_of(previous)
            links_seen(snapshot)
            return snapshot
        self._previous = snapshot
        self._seen(previous, snapshot)
        return snapshot


class Leading:
    """An ``Actuator`` that looks whether it may act right before each act of ``actuator``.

    ``NotPermitted`` where it may not: certainly nothing has happened.
    """

    def __init__(self, actuator: Actuator, impediment: Callable[[], str], check: Callable[[str], None]) -> None:
        """``check`` raises ``NotPermitted`` where the owner's name is another user's now."""
        self._actuator = actuator
        self._impediment = impediment
        self._check_owner = check

    def submit(self, request: JobRequest) -> JobId:
        """Submit through the wrapped actuator, if this daemon still leads."""
        self._check(request.user)
        return self._actuator.submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel through the wrapped actuator, if this daemon still leads."""
        self._check(owner)
        self._actuator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Update through the wrapped actuator, if this daemon still leads."""
        self._check(owner)
        self._actuator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal through the wrapped actuator, if this daemon still leads."""
        self._check(owner)
        self._actuator.signal(job_id, owner, signal, reach=reach)

    def adopting(self, adopter: Adopter) -> Adopter:
        """The same adopter, which looks as well whether it may act."""

        def adopt(owner: str, job_id: JobId) -> AgentResponse:
            self._check(owner)
            return adopter.adopt(owner, job_id)

        return replace(adopter, adopt=adopt)

    def _check(self, owner: str) -> None:
        if found := self._impediment():
            raise NotPermitted(f"this daemon may not act now: {found}")
        try:
            self._check_owner(owner)
        except StoreUnavailable as error:
            raise NotPermitted(f"cannot determine the user with the name {owner}: {error}") from None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditedAction:
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
        self,
        actuator: Actuator,
        record: Callable[[AuditedAction], None],
        now: Callable[[], float] = time.monotonic,
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
                self._record(AuditedAction(owner, text, job_id, f"{type(error).__name__}: {error}", tag))
            raise
        self._failed.pop((owner, text), None)
        self._record(AuditedAction(owner, text, job_id or _submitted(made), "done", tag))
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
