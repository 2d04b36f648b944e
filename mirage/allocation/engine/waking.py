"""Sleeps until something happens: a step ends, a signal comes, or it is time."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

TELLING = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
"""Signals that ask a link to end: Slurm's ``--signal=B:USR1@300``, Mirage's handover, a user's Ctrl-C."""


class Alarm:
    """Create it in the main thread; from then on these signals do not end the process."""

    def __init__(self) -> None:
        self.told: list[str] = []
        """Names of the signals received since the last call."""
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in TELLING:
            signal.signal(number, self._tell)
        signal.signal(signal.SIGCHLD, _notice)

    def wait(self, seconds: float) -> None:
        """Sleep at most ``seconds``."""
        select.select([self._reader], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def _tell(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.told.append(signal.Signals(number).name)


def _notice(number: int, frame: FrameType | None) -> None:
    """Install a handler: without one the signal would not wake the process."""
    del number, frame
