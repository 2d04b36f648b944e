"""Word to systemd (sd_notify): datagrams to the socket that the service manager names."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATUS_LENGTH = 400


class Notifier:
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
