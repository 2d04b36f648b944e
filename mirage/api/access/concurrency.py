"""Bounds the concurrent requests of each user, and of each address before authentication.

A request is in progress from its headers to the end of its response, even after its client has left: a waiting
request holds memory and a place in the queue although no client will read the response.
"""

from __future__ import annotations

import resource
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mirage.api.access.rates import TooOften
from mirage.boundedhttp import ClientPresence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 1024
"""Requests of all users, and as many of all addresses before authentication; at most half the open files that the
process may have."""
MOST_OF_ONE = 128
"""Requests of one user or address."""
SHARE = 4
"""A user or address gets at most a quarter of the free places, so that some stay free."""
RETRY_AFTER = 2
"""Seconds."""


class TooManyAtOnce(TooOften):
    """The caller has too many concurrent requests."""

    def __init__(self) -> None:
        text = "too many of your requests are in progress, including those whose client has left"
        super().__init__(RETRY_AFTER, f"{text}; send it again in {RETRY_AFTER} s")


@dataclass(eq=False, slots=True)
class ActiveRequest:
    """One request in progress. Cancelled when its client leaves, if that loses nothing."""

    end: Callable[[], object]
    """Cancels it."""
    safe: bool = True
    """Whether the request changes nothing."""
    presence: ClientPresence = field(default_factory=ClientPresence)
    place: tuple[_Pool, str] | None = None
    """The pool that counts it, and the key there."""
    awaits_body: bool = False
    """Whether the daemon waits for more of the body."""
    displaced: bool = False
    """Whether a newer request of the same caller has taken its place."""
    _leavable: int = 0
    _kept: int = 0

    def identify(self, user: str) -> None:
        """Count it as this user's from now on. Raises ``TooManyAtOnce``."""
        if self.place is not None and (users := self.place[0].users) is not None:
            strangers, key = self.place
            users.enter(self, user)
            strangers.leave(self, key)

    def leave(self) -> None:
        """Note that its client has left."""
        if (self.safe or self._leavable) and not self._kept:
            self.end()

    def leave_place(self) -> None:
        """Free the place: the request waits only for its client."""
        if self.place is not None:
            pool, key = self.place
            self.place = None
            pool.leave(self, key)

    @contextmanager
    def leavable(self) -> Iterator[None]:
        """Mark a part that may be cancelled without loss. Raises ``ClientDisconnect`` if the client has left."""
        if self.presence.left:
            raise ClientDisconnect
        self._leavable += 1
        try:
            yield
        finally:
            self._leavable -= 1

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Mark a part that runs to its end, even when the client leaves."""
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1
            if self.presence.left:
                self.leave()


class _Pool:
    """Places of one kind, by key."""

    def __init__(self, most: int, users: _Pool | None = None) -> None:
        """``users``: pool of callers that have authenticated as users."""
        self._most, self.users = most, users
        self._total = 0
        self._held: dict[str, dict[ActiveRequest, None]] = {}
        """The oldest first."""

    def enter(self, active: ActiveRequest, key: str) -> None:
        """Give a place. Raises ``TooManyAtOnce``.

        A caller without a free place loses the oldest request whose body has not arrived, so that slow senders do
        not block other clients at the same address.
        """
        held = self._held.get(key, {})
        if not self._has_room(len(held)):
            slow = next((other for other in held if other.awaits_body), None)
            if slow is None:
                raise TooManyAtOnce
            slow.displaced, slow.place = True, None
            self.leave(slow, key)
            slow.end()
        self._held.setdefault(key, {})[active] = None
        self._total += 1
        active.place = (self, key)

    def leave(self, active: ActiveRequest, key: str) -> None:
        del self._held[key][active]
        if not self._held[key]:
            del self._held[key]
        self._total -= 1

    def _has_room(self, held: int) -> bool:
        left = self._most - self._total
        return left > 0 and held < max(1, min(MOST_OF_ONE, left // SHARE))


class Concurrency:
    """The places of all callers. For the server's event loop only."""

    def __init__(self, most: int | None = None) -> None:
        """``most``: concurrent requests of all users, and as many of all addresses."""
        if most is None:
            most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._users = _Pool(most)
        self._strangers = _Pool(most, self._users)

    def enter(self, active: ActiveRequest, user: str, stranger: str = "") -> None:
        """Begin a request of ``user``, or if that is empty of ``stranger``. Raises ``TooManyAtOnce``."""
        if user:
            self._users.enter(active, user)
        else:
            self._strangers.enter(active, stranger)

    def leave(self, active: ActiveRequest) -> None:
        """End a request."""
        active.leave_place()


_ACTIVE: ContextVar[ActiveRequest | None] = ContextVar("mirage.active", default=None)


def activate(active: ActiveRequest) -> None:
    """Set the request that this task, and tasks that it starts, work for."""
    _ACTIVE.set(active)


def active_request() -> ActiveRequest:
    """Return the request of this task; a request that never ends if it has none."""
    return _ACTIVE.get() or ActiveRequest(lambda: None)
