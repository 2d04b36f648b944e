"""Supervisor of the fast clock: it owns what libfaketime shares, and frees a semaphore whose holder has died.

Every process on the fast clock takes the semaphore while it starts. A process that is killed during this never
releases it, and the next process to start waits indefinitely: a job, or ``squeue``. Processes that were forked
while the clock was being read are freed too (``forks``). ``onehost/clock.py`` runs this module as a program, on
the real clock. Its argument is the file to write, and ``FAKETIME_SHARED`` is in its environment.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from onehost.forks import Stuck, free, stuck_on

PERIOD_S = 0.05
PATIENCE = 40
"""Checks in a row: two seconds. A process normally holds the semaphore for microseconds."""


class Semaphore:
    """An existing named POSIX semaphore. Raises ``OSError`` where it does not exist."""

    def __init__(self, name: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.sem_open.restype = ctypes.c_void_p
        address = self._libc.sem_open(name.encode(), 0)
        if not address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
        self._address = ctypes.c_void_p(address)

    def value(self) -> int:
        """How many processes may take it now."""
        found = ctypes.c_int()
        self._libc.sem_getvalue(self._address, ctypes.byref(found))
        return found.value

    def take(self) -> None:
        """Wait until it can be taken, and take it."""
        while self._libc.sem_wait(self._address):
            continue

    def take_if_free(self) -> None:
        """Take it if it is free."""
        self._libc.sem_trywait(self._address)

    def give(self) -> None:
        """Increment it, so that one more process may take it."""
        self._libc.sem_post(self._address)


@dataclass(slots=True)
class Watch:
    """Decides about a semaphore that one process at a time may hold, from its value at each check."""

    taken: int = 0
    """Checks in a row at which it was taken."""

    def look(self, value: int) -> int:
        """The change of its value: 1 after ``PATIENCE`` checks at 0, -1 where it is too high.

        It is too high if its holder was only paused, and has released it after all.
        """
        self.taken = self.taken + 1 if value == 0 else 0
        if self.taken == PATIENCE:
            self.taken = 0
            return 1
        return -1 if value > 1 else 0


def keep(semaphore: Semaphore, memory: Path) -> None:
    """Watch it, and the processes that share this memory, until this process is ended."""
    watch = Watch()
    stuck = stuck_on(memory)
    for look in itertools.count():
        if look % PATIENCE == 0:
            stuck = _freed(stuck, stuck_on(memory))
        change = watch.look(semaphore.value())
        if change > 0:
            semaphore.give()
            sys.stderr.write("a process that has ended held the fast clock; freed\n")
        elif change < 0:
            semaphore.take_if_free()
        time.sleep(PERIOD_S)


def _freed(before: frozenset[Stuck], now: frozenset[Stuck]) -> frozenset[Stuck]:
    """Free processes that have waited for two seconds; returns those that wait now."""
    for one in before & now:
        if free(one):
            sys.stderr.write(f"freed process {one[0]}, forked while the clock was being read\n")
    return now


def main() -> None:
    """Write the names of the shared clock, then watch it."""
    shared, place = os.environ["FAKETIME_SHARED"], Path(sys.argv[1])
    written = place.with_name(f"{place.name}.new")
    written.write_text(f"{shared}\n")
    written.replace(place)
    semaphore, memory = shared.split()
    keep(Semaphore(semaphore), Path("/dev/shm") / memory.lstrip("/"))  # noqa: S108 - named by libfaketime
