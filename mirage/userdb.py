"""The machine's user database: it may ask another machine (LDAP, SSSD), and hang.

Threads that others wait for (the server's, which reads who has connected, and the loop's) take the last answers,
and never wait. Lookups run in a few separate threads. ``os.getgrouplist`` keeps the interpreter's lock while it
waits, which stops all threads, so another program looks up groups.
"""

from __future__ import annotations

import logging
import pwd
import queue
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

_LOG = logging.getLogger(__name__)
_ID = "/usr/bin/id"
_THREADS = 4
_FRESH, _MOST = 60.0, 20_000
_GROUPS_WITHIN = 10.0
WITHIN = 5.0
"""Seconds that a thread of one request waits for a lookup."""


class UserLookupTimeout(OSError):
    """The user database has not answered in time."""


class Known(Generic[K, V]):
    """Results of a lookup, for threads that may not wait. Every thread may use it.

    The last answer is returned immediately, and looked up again in the background once it is a minute old. While
    the database hangs, the last answer counts.
    """

    def __init__(self, look: Callable[[K], V], now: Callable[[], float] = time.monotonic) -> None:
        """``look``: may wait; raises nothing."""
        self._look, self._now = look, now
        self._found: dict[K, tuple[float, V]] = {}
        self._waiting: dict[K, list[Callable[[V], object]]] = {}
        self._asked = queue.SimpleQueue[K]()
        self._lock = threading.Lock()
        self._threads = 0

    def last(self, key: K) -> V | None:
        """The last answer, or ``None`` before the first. Looks up in the background where it is missing or old."""
        found = self._found.get(key)
        if found is None or self._now() - found[0] > _FRESH:
            self.ask(key)
        return None if found is None else found[1]

    def ask(self, key: K, told: Callable[[V], object] | None = None) -> None:
        """Look it up in the background; ``told`` is called with the answer, by another thread, or never."""
        with self._lock:
            if key in self._waiting:
                self._waiting[key] += [told] if told else []
                return
            self._waiting[key] = [told] if told else []
            self._asked.put(key)
            if self._threads < _THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="user database", daemon=True).start()

    def wait(self, key: K, seconds: float) -> V:
        """A new answer, or the last one after ``seconds``. Raises ``UserLookupTimeout`` where neither exists."""
        answered, found = threading.Event(), list[V]()

        def told(value: V) -> None:
            found.append(value)
            answered.set()

        self.ask(key, told)
        if answered.wait(seconds):
            return found[0]
        last = self._found.get(key)
        if last is None:
            raise UserLookupTimeout(f"the user database has not answered within {seconds:g} s")
        return last[1]

    def _work(self) -> None:
        while True:
            try:
                key = self._asked.get(timeout=_FRESH)
            except queue.Empty:
                with self._lock:
                    if self._asked.empty():
                        self._threads -= 1
                        return
                continue
            value = self._look(key)
            with self._lock:
                if len(self._found) >= _MOST:
                    self._found.clear()
                self._found[key] = self._now(), value
                waiting = self._waiting.pop(key, [])
            for told in waiting:
                try:
                    told(value)
                except Exception:  # such as a server's loop that has ended since; others wait for this thread
                    _LOG.debug("event=user_lookup_unused", exc_info=True)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return -1


NAMES: Known[int, str] = Known(_name)
"""Names of UIDs; empty: this machine has none."""
UIDS: Known[str, int] = Known(_uid)
"""UIDs of names; -1: this machine does not know the name."""


def group_ids(name: str) -> frozenset[int]:
    """The groups of a user, as ``id`` has them. Raises ``KeyError``, ``UserLookupTimeout`` and ``OSError``."""
    if UIDS.wait(name, WITHIN) < 0:  # id would take an unknown name of digits for a UID
        raise KeyError(name)
    try:
        found = subprocess.run(  # noqa: S603 - an argument vector; no shell
            [_ID, "-G", "--", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GROUPS_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem = f"the user database has not reported the groups of {name} within {_GROUPS_WITHIN:g} s"
        raise UserLookupTimeout(problem) from None
    if found.returncode:
        raise KeyError(name)
    return frozenset(int(each) for each in found.stdout.split())
