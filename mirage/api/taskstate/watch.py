"""Looking at how tasks stand without ever waiting long: a file system may hang, and threads on it with it."""

from __future__ import annotations

import logging
import pwd
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mirage.api.taskstate.reading import StateUnseen, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.api.taskstate.content import TaskStatus
    from mirage.domain.chain import Chain, ChainId

_LOG = logging.getLogger(__name__)

Seen: TypeAlias = "TaskStatus | str"
"""What a file says, or a sentence why that is not known."""

MOST_OWNERS = 64
"""Whose files are read at the same time."""


@dataclass(frozen=True, slots=True)
class _Look:
    chain: Chain
    asked: float
    answer: Future[Seen] = field(default_factory=Future)


def _uid_of(owner: str) -> int:
    return pwd.getpwnam(owner).pw_uid


class TaskWatch:
    """Reads files for many who ask, each file once at a time, one owner's one after another.

    A file system that hangs holds up one thread for each owner who has files there: nobody else waits for it, and
    who asks again is told at once.
    """

    def __init__(
        self,
        uid_of: Callable[[str], int] = _uid_of,
        read: Callable[[str, str, int], TaskStatus] = read_state,
        patience: float = 2.0,
    ) -> None:
        self._uid_of, self._read, self._patience = uid_of, read, patience
        self._lock = threading.Lock()
        self._lines: dict[str, dict[ChainId, _Look]] = {}
        """By owner: what is to be read, the first of them just now."""

    def look(self, chains: Iterable[Chain]) -> dict[ChainId, Seen]:
        """What the files of these chains say; takes no longer than the patience."""
        looks = [(chain, self._ask(chain)) for chain in chains]
        return {chain.chain_id: self._answer(chain, look) for chain, look in looks}

    def _ask(self, chain: Chain) -> _Look | None:
        look = _Look(chain, time.monotonic())
        with self._lock:
            line = self._lines.get(chain.owner)
            if line is not None:
                return line.setdefault(chain.chain_id, look)
            if len(self._lines) >= MOST_OWNERS:
                return None
            self._lines[chain.owner] = {chain.chain_id: look}
        threading.Thread(target=self._work, args=(chain.owner,), name="tasks", daemon=True).start()
        return look

    def _work(self, owner: str) -> None:
        while (look := self._first(owner)) is not None:
            seen = self._seen(look.chain)
            with self._lock:
                del self._lines[owner][look.chain.chain_id]
            look.answer.set_result(seen)

    def _first(self, owner: str) -> _Look | None:
        with self._lock:
            first = next(iter(self._lines[owner].values()), None)
            if first is None:
                del self._lines[owner]
        return first

    def _seen(self, chain: Chain) -> Seen:
        try:
            return self._read(chain.tasks_state, chain.owner, self._uid_of(chain.owner))
        except StateUnseen as unseen:
            return str(unseen)
        except KeyError:
            return f"{chain.owner} is no user of the daemon's machine, so it cannot tell whose file it would read"
        except Exception:
            _LOG.exception("the tasks of chain %s could not be read", chain.chain_id)
            return f"{chain.tasks_state} could not be read; the daemon's log says why"

    def _answer(self, chain: Chain, look: _Look | None) -> Seen:
        if look is None:
            return "the files of too many others are being read and do not come: their file system may hang"
        waited = time.monotonic() - look.asked
        try:
            return look.answer.result(max(0.0, self._patience - waited))
        except NotYet:
            waited = time.monotonic() - look.asked
            return f"{chain.tasks_state}: no answer for {waited:.0f} s; its file system may hang"
