"""How many requests each user, and each address before it proves who asks, has in progress at once.

A request is in progress from its headers to the end of its answer, whether or not its client is still there: what
waits for a turn holds memory and a place in line even when no client will read the answer.
"""

from __future__ import annotations

import resource
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mirage.api.access.rates import TooOften
from mirage.boundedhttp import Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 1024
"""Requests of all users, and as many of all addresses whose user is not known yet; at most half as many as the
process may have open files."""
MOST_OF_ONE = 128
"""Requests of one user or address."""
SHARE = 4
"""One user or address gets at most a quarter of the places that are left, so that some are always left."""
RETRY_AFTER = 2
"""Seconds."""


class TooManyAtOnce(TooOften):
    """The caller has too many requests in progress."""

    def __init__(self) -> None:
        text = "too many of your requests are in progress, also those whose client has left"
        super().__init__(RETRY_AFTER, f"{text}; send it again in {RETRY_AFTER} s")


@dataclass(eq=False, slots=True)
class ActiveRequest:
    """One request in progress. Cancelled where its client leaves and nothing is lost by that."""

    end: Callable[[], object]
    """Cancels it."""
    safe: bool = True
    """It changes nothing."""
    presence: Presence = field(default_factory=Presence)
    place: tuple[_Pool, str] | None = None
    """Where it counts, and under which key."""
    awaits_body: bool = False
    """The daemon waits for its client to send more of it."""
    displaced: bool = False
    """It has lost its place to a newer request of the same caller."""
    _leavable: int = 0
    _kept: int = 0

    def identify(self, user: str) -> None:
        """It is this user's, and counts as such from now on. Raises ``TooManyAtOnce``."""
        if self.place is not None and (users := self.place[0].users) is not None:
            strangers, key = self.place
            users.enter(self, user)
            strangers.leave(self, key)

    def leave(self) -> None:
        """Its client has left."""
        if (self.safe or self._leavable) and not self._kept:
            self.end()

    def leave_place(self) -> None:
        """It waits for nothing any more but its client."""
        if self.place is not None:
            pool, key = self.place
            self.place = None
            pool.leave(self, key)

    @contextmanager
    def leavable(self) -> Iterator[None]:
        """Within, nothing is lost where it ends. Raises ``ClientDisconnect`` where its client has left."""
        if self.presence.left:
            raise ClientDisconnect
        self._leavable += 1
        try:
            yield
        finally:
            self._leavable -= 1

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within, it does not end before what it does."""
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
        """``users``: where those go who turn out to be users."""
        self._most, self.users = most, users
        self._total = 0
        self._held: dict[str, dict[ActiveRequest, None]] = {}
        """The oldest first."""

    def enter(self, active: ActiveRequest, key: str) -> None:
        """Give a place. Raises ``TooManyAtOnce``.

        A caller who has no place left loses the oldest request whose body has not come, so that those who send
        slowly keep nobody at the same address out.
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
        """The place is free."""
        del self._held[key][active]
        if not self._held[key]:
            del self._held[key]
        self._total -= 1

    def _has_room(self, held: int) -> bool:
        left = self._most - self._total
        return left > 0 and held < max(1, min(MOST_OF_ONE, left // SHARE))


class Concurrency:
    """The places of all. For the server's event loop only."""

    def __init__(self, most: int | None = None) -> None:
        """``most``: requests in progress of all users, and again of all addresses."""
        if most is None:
            most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._users = _Pool(most)
        self._strangers = _Pool(most, self._users)

    def enter(self, active: ActiveRequest, user: str, stranger: str = "") -> None:
        """A request begins: of ``user``, or where that is empty of ``stranger``. Raises ``TooManyAtOnce``."""
        if user:
            self._users.enter(active, user)
        else:
            self._strangers.enter(active, stranger)

    def leave(self, active: ActiveRequest) -> None:
        """It is answered, or has ended otherwise."""
        active.leave_place()


_ACTIVE: ContextVar[ActiveRequest | None] = ContextVar("mirage.active", default=None)


def activate(active: ActiveRequest) -> None:
    """Say of this task, and of those that it starts, which request they work for."""
    _ACTIVE.set(active)


def active_request() -> ActiveRequest:
    """The request that this task works for; one that lasts where it works for none."""
    return _ACTIVE.get() or ActiveRequest(lambda: None)
