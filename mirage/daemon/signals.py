"""Signals: a thread receives them immediately, the loop acts on them between cycles.

Python runs signal handlers in the main thread between two instructions, where it may hold any lock, the one of the
event that the loop waits for included. So the handlers do nothing: the interpreter writes the signal's number to a
socket, and a thread reads it there.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

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
