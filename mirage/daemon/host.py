"""The daemon and its machine: signals, systemd (sd_notify), memory allocator, user database.

Python runs signal handlers in the main thread between two instructions, where it may hold any lock, the one of the
event that the loop waits for included. So the handlers do nothing: the interpreter writes the signal's number to a
socket, and a thread reads it there.

A container that mounts ``/etc/passwd`` keeps an old one: ``useradd`` and ``userdel`` write a new file and rename
it, and a mount of the single file shows the old one from then on. An added user has no name, and a user who got
the number of a removed account would be taken for that one.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import FrameType


def settle() -> None:
    """Freeze the objects of the start, which live as long as the process, for the garbage collector.

    It stops all threads while it looks, some tenth of a second each time, and requests wait as long.
    """
    gc.unfreeze()  # what an earlier term of leadership made may go
    gc.collect()
    gc.freeze()


_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
"""Parameters of ``mallopt`` (malloc.h of glibc)."""
_MOST_ARENAS = 2
_LARGE = 1 << 20
"""Bytes from which on memory is given back as soon as it is free."""


def keep_heap_small() -> None:
    """Have freed memory given back; to be called before the process has threads.

    glibc keeps up to eight heaps for each CPU, and in each what was once used: a daemon that answers in many
    threads would keep as much for each of them as its largest answer took. Does nothing with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _MOST_ARENAS)
        mallopt(_MMAP_THRESHOLD, _LARGE)


_STATUS_LENGTH = 400


class SystemdNotifier:
    """Reports the daemon's state to systemd at ``$NOTIFY_SOCKET``; without that variable it does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period = environ.get("WATCHDOG_USEC", "") if watched else ""
        self.watchdog_seconds = int(period) / 1e6 if period.isdigit() else 0.0
        """Within which the manager wants ``alive`` called; 0: it does not watch."""

    def ready(self) -> None:
        """Started, or done with reloading."""
        self._say("READY=1")

    def reloading(self) -> None:
        """About to read the configuration again."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def stopping(self) -> None:
        """Notify systemd that the daemon shuts down."""
        self._say("STOPPING=1")

    def status(self, sentence: str) -> None:
        """One line for ``systemctl status``."""
        self._say("STATUS=" + sentence.replace("\n", " ")[:_STATUS_LENGTH])

    def alive(self) -> None:
        """The decision loop is not stuck."""
        if self.watchdog_seconds:
            self._say("WATCHDOG=1")

    def _say(self, message: str) -> None:
        """Never waits and never fails: a manager that does not listen is no reason to stop."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            try:
                to.sendto(message.encode(), self._address)
            except OSError:
                return


USER_DATABASE = (Path("/etc/passwd"), Path("/etc/group"))


class UsersOutdated(MirageError):
    """The process has to start again, with the file mounted again, to know the users of the machine."""


def check_user_files(files: Iterable[Path] = USER_DATABASE) -> None:
    """Raise ``UsersOutdated`` where a file is shown that no directory has any more; a missing one is fine."""
    for file in files:
        try:
            links = file.stat().st_nlink
        except OSError:
            continue
        if not links:
            raise UsersOutdated(f"{file} was replaced on the host after the container mounted it")


_LOG = logging.getLogger(__name__)
_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _noted(number: int, frame: FrameType | None) -> None:
    del number, frame


class SignalWatch:
    """``stop`` is called for the first SIGTERM or SIGINT, ``reload`` for each SIGHUP; both in a thread.

    A second SIGTERM or SIGINT ends the process immediately: the database is written before each action, so nothing
    is lost. Must be made in the main thread.
    """

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        self._stop = stop
        self._reload = reload
        self._stopping = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _noted) for number in _WATCHED}
        self._thread = Thread(target=self._watch, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Restore the signal handlers that were set before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _watch(self) -> None:
        while received := self._reader.recv(64):
            for number in received:
                self._obey(number)

    def _obey(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            _LOG.info("event=reload_requested signal=%s text=%r", name, "after this cycle")
            self._reload()
        elif number in _WATCHED and self._stopping:
            _LOG.warning("event=stopping signal=%s text=%r", name, "second signal: immediately")
            logging.shutdown()
            os._exit(128 + number)
        elif number in _WATCHED:
            self._stopping = True
            _LOG.info(
                "event=stopping signal=%s text=%r", name, "after this cycle; a second signal stops immediately"
            )
            self._stop()
