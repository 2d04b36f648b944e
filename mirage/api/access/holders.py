"""Checks that a user name still has its UID: the next holder of a name gets nothing of the former one.

Chains and tokens belong to their owner's name. The UID of each name is stored when the name is first seen. If the
UID changes later, the name is denied access until the chains and tokens of its former holder have been ended.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import NotPermitted
from mirage.userdb import UIDS, WITHIN, UserLookupTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOG = logging.getLogger(__name__)

UNKNOWN = -1
_LOOK_EVERY, _COUNTS_FOR = 60.0, 900.0
_SLOW = 2.0
_MOST_CHECKED = 10_000


class HolderStorage(Protocol):
    """Storage of UIDs; all methods raise ``StoreUnavailable``."""

    def load(self) -> dict[str, int]:
        """Return the UID of each name."""

    def put(self, name: str, uid: int) -> None:
        """Store the UID of a name."""


class Succession(Protocol):
    """Ends the chains and tokens of a former holder."""

    def __call__(self, name: str, uid: int, done: Callable[[], None], failed: Callable[[], None]) -> None:
        """``uid``: of the former holder. Calls one of the two, now or later, in any thread; raises nothing."""


class Holders:
    """The UIDs of user names. Any thread may use it; a check may wait for the user database."""

    def __init__(
        self,
        storage: HolderStorage,
        succession: Succession,
        uid_of: Callable[[str], int] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``uid_of``: a name's UID in the user database; ``UNKNOWN`` if it has none."""
        self._storage, self._succession = storage, succession
        self._uid_of, self._now = uid_of or uid_in_time, now
        self._kept: dict[str, int] | None = None
        self._checked: dict[str, float] = {}
        """By name: monotonic time of the last successful check."""
        self._hangs_until = 0.0
        """No action waits for the user database until then: an earlier one waited too long."""
        self._leaving: set[str] = set()
        self._lock = threading.RLock()

    def knows(self, name: str, uid: int) -> bool:
        """Whether this UID is stored for the name, as far as that is in memory."""
        return (self._kept or {}).get(name) == uid

    def admit(self, name: str) -> None:
        """Check the name at most once per minute. Raises as ``check``."""
        at = self._checked.get(name)
        if at is None or self._now() - at >= _LOOK_EVERY:
            self.check(name)

    def permit(self, name: str) -> None:
        """Check before an action under that name; waits for the user database only for a name not checked lately.

        Relies on ``review``, which checks the names of live chains. Raises as ``check``.
        """
        at, now = self._checked.get(name), self._now()
        if at is not None and now - at <= _COUNTS_FOR:
            return
        if now < self._hangs_until:
            raise NotPermitted(f"the user database does not answer; the UID of {name} is unknown")
        try:
            self.check(name)
        finally:
            if self._now() - now > _SLOW:
                self._hangs_until = self._now() + _LOOK_EVERY

    def check(self, name: str, uid: int = UNKNOWN) -> None:
        """Check that the name still has its stored UID; ``uid``: that of the caller, as the kernel reports it.

        Raises ``NotPermitted`` if it has another one or the check is not possible, and ``StoreUnavailable``.
        """
        kept, found = self._all().get(name), self._uid_of(name)
        if found == UNKNOWN and uid == UNKNOWN and kept is None:
            # Without user names on this machine, as in a container, there is nothing to compare.
            self._note(name)
            return
        if found == UNKNOWN and uid == UNKNOWN:
            raise NotPermitted(f"user {name} is unknown on this machine, or its user database does not answer")
        if UNKNOWN not in (found, uid) and found != uid:
            raise NotPermitted(f"the user name {name} has two UIDs on this machine: {uid} and {found}")
        actual = uid if found == UNKNOWN else found
        if kept is None:
            self._keep(name, actual)
        elif kept != actual:
            self._succeed(name, kept, actual)
            raise NotPermitted(
                f"the UID of {name} changed from {kept} to {actual}: Mirage is ending the chains and tokens of "
                "the former user of this name; try again in a minute"
            )
        self._note(name)

    def review(self, names: Iterable[str]) -> None:
        """Check each of these names once per minute. Raises ``StoreUnavailable``."""
        for name in names:
            try:
                self.admit(name)
            except NotPermitted as error:
                _LOG.debug("%s", error)

    def forget(self) -> None:
        """Read again at the next check: another daemon may have stored names."""
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
        _LOG.warning(
            text, name, former, holder, "ending the chains and tokens of the former UID", extra={"always": True}
        )
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
    """Return a name's UID by the user database. Raises ``NotPermitted`` if that does not answer."""
    try:
        return UIDS.wait(name, WITHIN)
    except UserLookupTimeout as error:
        raise NotPermitted(f"the UID of {name} is unknown: {error}") from None
