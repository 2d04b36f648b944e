"""Messages on their way: a thread and a bounded queue for each channel, so that nobody waits for a slow one."""

from __future__ import annotations

import logging
import queue
from threading import Event, Thread
from typing import TYPE_CHECKING

from mirage.notifications.channel import Undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.notice import Notice
    from mirage.notifications.channel import Channel

_LOG = logging.getLogger(__name__)
_ROOM = 200
PAUSES = (5.0, 30.0, 120.0, 600.0)
"""Seconds before each further attempt."""


class Courier:
    """Delivers by one channel; ``told`` hears ``sent``, ``failed`` or ``dropped`` of each message."""

    def __init__(
        self,
        channel: Channel,
        told: Callable[[str, str], None],
        pauses: Sequence[float] = PAUSES,
        room: int = _ROOM,
    ) -> None:
        self.channel = channel
        self._told = told
        self._pauses = pauses
        self._waiting: queue.Queue[Notice] = queue.Queue(room)
        self._ended = Event()
        self._thread = Thread(target=self._run, name=f"notify-{channel.name}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Send it soon, if this channel wants it; never waits. What finds no room is dropped."""
        if not self.channel.wants(notice):
            return
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._told(self.channel.name, "dropped")
            _LOG.warning(
                "%s: %d messages wait already; dropped: %s", self.channel.name, self._waiting.maxsize, notice.text
            )

    def close(self) -> None:
        """Begin no further attempt; what still waits is lost."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                notice = self._waiting.get(timeout=1.0)
            except queue.Empty:
                continue
            self._deliver(notice)

    def _deliver(self, notice: Notice) -> None:
        try:
            result = "sent" if self._insist(notice) else "failed"
        except Exception:
            result = "failed"
            _LOG.exception("%s: a fault of this program, please report it", self.channel.name)
        self._told(self.channel.name, result)

    def _insist(self, notice: Notice) -> bool:
        """Try until it is delivered, or hopeless."""
        for pause in (*self._pauses, None):
            try:
                self.channel.send(notice)
            except Undeliverable as error:
                _LOG.warning("%s: %s: %s", self.channel.name, error, notice.text)
                if not error.passing or pause is None or self._ended.wait(pause):
                    return False
            else:
                return True
        return False
