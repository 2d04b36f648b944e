"""Frees processes that were forked while a lock was held.

libfaketime guards the time with a mutex. When slurmstepd forks a job while another of its threads reads the time,
the child has the mutex locked and no thread that could unlock it. It hangs before it becomes the job, and its node
stays "completing" indefinitely. Such a child is recognised with certainty: one thread that waits for a private
futex, which only that thread could wake.
"""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FUTEX = {"x86_64": 202, "aarch64": 98}
"""Number of the system call."""
_WAIT_PRIVATE = 0x80
_CONTENDED = 2
"""Value of a glibc mutex with a waiter."""

_PROC = Path("/proc")

Stuck = tuple[int, int]
"""Process, and the address of the futex that it waits for."""


def stuck_on(clock: Path) -> frozenset[Stuck]:
    """Processes that map this file and wait for themselves; perhaps only for a moment."""
    return frozenset(_stuck(clock))


def free(stuck: Stuck) -> bool:
    """Unlock the mutex in the process's memory and make the process check again; ``False`` if not permitted."""
    pid, address = stuck
    try:
        with (_PROC / str(pid) / "mem").open("r+b", buffering=0) as memory:
            memory.seek(address)
            lock, count, owner, users = struct.unpack("4i", memory.read(16))
            memory.seek(address)
            # glibc's mutex (struct __pthread_mutex_s) or a plain lock: only the first records its holder.
            is_mutex = (lock, count) == (_CONTENDED, 0) and owner > 0 and users > 0
            memory.write(bytes(12 if is_mutex else 4))
        # A stop interrupts the wait; after the continue it starts over and sees the new value.
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
    except OSError:
        return False
    return True


def _stuck(clock: Path) -> Iterator[Stuck]:
    for place in _PROC.glob("[0-9]*"):
        try:
            address = _waited_for((place / "syscall").read_text())
            if not address or len(list((place / "task").iterdir())) != 1:
                continue
            if f" {clock}\n" in (place / "maps").read_text():
                yield int(place.name), address
        except OSError:
            continue  # it has ended, or belongs to another user


def _waited_for(syscall: str) -> int:
    """The address of the private, contended futex that a line of ``/proc/PID/syscall`` waits for; 0: none."""
    words = syscall.split()
    if words[0] != str(_FUTEX.get(os.uname().machine)):
        return 0
    address, operation, value = (int(word, 16) for word in words[1:4])
    return address if (operation, value) == (_WAIT_PRIVATE, _CONTENDED) else 0
