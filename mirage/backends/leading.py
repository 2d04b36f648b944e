"""Acts only while this daemon leads, and for users who are who they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import NotPermitted, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.job import JobChange, JobId, JobRequest, SignalReach
    from mirage.ports import Actuator


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

    def _check(self, owner: str) -> None:
        if found := self._impediment():
            raise NotPermitted(f"this daemon may not act now: {found}")
        try:
            self._check_owner(owner)
        except StoreUnavailable as error:
            raise NotPermitted(f"cannot determine the user with the name {owner}: {error}") from None
