"""Keeps the fast clock: what libfaketime shares lives with it, and a semaphore that died with its holder is freed.

Every process that lives on the clock takes the semaphore while it starts. One that is killed just then never gives
it back, and whatever starts next waits indefinitely: the next job, the next ``squeue``. Processes that were forked
while the clock was being read are freed too (``forks``). Run by ``onehost/clock.py`` as a program, on the real
clock: it is told the file to write, and has ``FAKETIME_SHARED`` in its environment.
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
"""Looks in a row: two seconds. Who holds the semaphore rightly has it for microseconds."""


class Semaphore:
    """A named POSIX semaphore that exists. Raises ``OSError`` where it does not."""

    def __init__(self, name: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.sem_open.restype = ctypes.c_void_p
        address = self._libc.sem_open(name.encode(), 0)
        if not address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
        self._address = ctypes.c_void_p(address)

    def value(self) -> int:
        """How many may take it now."""
        found = ctypes.c_int()
        self._libc.sem_getvalue(self._address, ctypes.byref(found))
        return found.value

    def take(self) -> None:
        """Wait until it can be taken, and take it."""
        while self._libc.sem_wait(self._address):
            continue

    def take_if_free(self) -> None:
        """Take it, unless that would mean waiting."""
        self._libc.sem_trywait(self._address)

    def give(self) -> None:
        """Let one more take it."""
        self._libc.sem_post(self._address)


@dataclass(slots=True)
class Watch:
    """What to do about a semaphore that one at a time may hold, from its value at each look."""

    taken: int = 0
    """Looks in a row at which it was taken."""

    def look(self, value: int) -> int:
        """By how much the value is to be changed: 1 after ``PATIENCE`` looks at 0, -1 where it is too high.

        It is too high when the holder given up on lived after all, paused perhaps, and has given it back.
        """
        self.taken = self.taken + 1 if value == 0 else 0
        if self.taken == PATIENCE:
            self.taken = 0
            return 1
        return -1 if value > 1 else 0


def keep(semaphore: Semaphore, memory: Path) -> None:
    """Look after it, and after those who share this memory, until this process is ended."""
    watch = Watch()
    stuck = stuck_on(memory)
    for look in itertools.count():
        if look % PATIENCE == 0:
            stuck = _freed(stuck, stuck_on(memory))
        change = watch.look(semaphore.value())
        if change > 0:
            semaphore.give()
            sys.stderr.write("the fast clock was held by a process that has ended; freed\n")
        elif change < 0:
            semaphore.take_if_free()
        time.sleep(PERIOD_S)


def _freed(before: frozenset[Stuck], now: frozenset[Stuck]) -> frozenset[Stuck]:
    """Free those that wait as they did two seconds ago; who waits now."""
    for one in before & now:
        if free(one):
            sys.stderr.write(f"process {one[0]} was forked while the clock was being read; freed\n")
    return now


def main() -> None:
    """Say under which names the clock is shared, then keep it."""
    shared, place = os.environ["FAKETIME_SHARED"], Path(sys.argv[1])
    written = place.with_name(f"{place.name}.new")
    written.write_text(f"{shared}\n")
    written.replace(place)
    semaphore, memory = shared.split()
    keep(Semaphore(semaphore), Path("/dev/shm") / memory.lstrip("/"))  # noqa: S108 - named by libfaketime
