"""Whose a user's name is: a name that is given to another person brings nothing of the former one's along.

Chains and tokens are known by their owner's name. The UID behind each name is kept from the first time that the
name is met. Where it is another one later, nobody comes in by that name until all that was the former holder's is
put away.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import NotPermitted
from mirage.userdb import UIDS, WITHIN, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOG = logging.getLogger(__name__)

UNKNOWN = -1
_LOOK_EVERY, _COUNTS_FOR = 60.0, 900.0
_SLOW = 2.0
_MOST_CHECKED = 10_000


class HolderStorage(Protocol):
    """Where UIDs are kept; all methods raise ``StoreUnavailable``."""

    def load(self) -> dict[str, int]:
        """The UID of each name."""

    def put(self, name: str, uid: int) -> None:
        """Keep one."""


class Succession(Protocol):
    """Puts away what is a former holder's."""

    def __call__(self, name: str, uid: int, done: Callable[[], None], failed: Callable[[], None]) -> None:
        """``uid``: the former holder's. Calls one of the two, now or later, in any thread; raises nothing."""


class Holders:
    """The UIDs of names. Any thread may use it; a check may wait for the machine's user database."""

    def __init__(
        self,
        storage: HolderStorage,
        succession: Succession,
        uid_of: Callable[[str], int] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``uid_of``: a name's UID by the machine's user database, ``UNKNOWN`` where it has none."""
        self._storage, self._succession = storage, succession
        self._uid_of, self._now = uid_of or uid_in_time, now
        self._kept: dict[str, int] | None = None
        self._checked: dict[str, float] = {}
        """When, on the monotonic clock, a name was looked up last, and was its holder's."""
        self._hangs_until = 0.0
        """Until then no act waits for the user database: one has waited for long."""
        self._leaving: set[str] = set()
        self._lock = threading.RLock()

    def knows(self, name: str, uid: int) -> bool:
        """Whether the name is kept as this user's, as far as that is in memory."""
        return (self._kept or {}).get(name) == uid

    def admit(self, name: str) -> None:
        """Look whether the name still is its holder's, once a minute. Raises as ``check``."""
        at = self._checked.get(name)
        if at is None or self._now() - at >= _LOOK_EVERY:
            self.check(name)

    def permit(self, name: str) -> None:
        """Before an act in that name: wait for the user database only where it was never asked about the name.

        Relies on ``review``. Raises as ``check``.
        """
        at, now = self._checked.get(name), self._now()
        if at is not None and now - at > _COUNTS_FOR:
            raise NotPermitted(f"the user database has not reported for {_COUNTS_FOR:.0f} s who {name} is")
        if at is not None:
            return
        if now < self._hangs_until:
            raise NotPermitted(f"the user database does not answer: who {name} is, is not known")
        try:
            self.check(name)
        finally:
            if self._now() - now > _SLOW:
                self._hangs_until = self._now() + _LOOK_EVERY

    def check(self, name: str, uid: int = UNKNOWN) -> None:
        """Look whether the name still is its holder's; ``uid``: who claims it, by the kernel's word.

        Raises ``NotPermitted`` where it is not, or cannot be told, and ``StoreUnavailable``.
        """
        kept, found = self._all().get(name), self._uid_of(name)
        if found == UNKNOWN and uid == UNKNOWN and kept is None:
            # A machine without its users' names, such as a container: there is nothing to compare.
            self._note(name)
            return
        if found == UNKNOWN and uid == UNKNOWN:
            raise NotPermitted(f"this machine does not know the user {name}, or its user database does not answer")
        if UNKNOWN not in (found, uid) and found != uid:
            raise NotPermitted(f"the name {name} stands for the UIDs {uid} and {found} on this machine")
        actual = uid if found == UNKNOWN else found
        if kept is None:
            self._keep(name, actual)
        elif kept != actual:
            self._succeed(name, kept, actual)
            raise NotPermitted(
                f"the name {name} stood for UID {kept} before and stands for {actual} now: chains and tokens of "
                "the former holder are being put away; try again in a minute"
            )
        self._note(name)

    def review(self, names: Iterable[str]) -> None:
        """Look at each of these names once a minute. Raises ``StoreUnavailable``."""
        for name in names:
            try:
                self.admit(name)
            except NotPermitted as error:
                _LOG.debug("%s", error)

    def forget(self) -> None:
        """Read again at the next question: another daemon may have kept some."""
        with self._lock:
            self._kept = None
            self._checked.clear()

    def _note(self, name: str) -> None:
        with self._lock:
            if len(self._checked) >= _MOST_CHECKED:
                self._checked.clear()
            self._checked[name] = self._now()

    def _succeed(self, name: str, former: int, holder: int) -> None:
        with self._lock:
            self._checked.pop(name, None)
            if name in self._leaving:
                return
            self._leaving.add(name)
        text = "event=name_changed_hands user=%r former_uid=%d uid=%d text=%r"
        _LOG.warning(text, name, former, holder, "what is the former holder's is put away", extra={"always": True})
        self._succession(name, former, lambda: self._settled(name, holder), lambda: self._leaving.discard(name))

    def _settled(self, name: str, holder: int) -> None:
        try:
            self._keep(name, holder)
        finally:
            self._leaving.discard(name)

    def _keep(self, name: str, uid: int) -> None:
        with self._lock:
            self._storage.put(name, uid)
            self._all()[name] = uid

    def _all(self) -> dict[str, int]:
        kept = self._kept
        if kept is None:
            with self._lock:
                kept = self._kept = self._storage.load()
        return kept


def uid_in_time(name: str) -> int:
    """The name's UID by the machine's user database. Raises ``NotPermitted`` where that does not answer."""
    try:
        return UIDS.wait(name, WITHIN)
    except Unanswered as error:
        raise NotPermitted(f"who {name} is cannot be told: {error}") from None
