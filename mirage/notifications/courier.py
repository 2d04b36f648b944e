"""Messages on their way: a thread and a bounded queue for each channel, so that nobody waits for a slow one.

The users take turns in each queue, and a message that has to be retried holds those of its user alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.shares import find_displaced
from mirage.notifications.channel import Undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.notice import Notice
    from mirage.notifications.channel import Channel

_LOG = logging.getLogger(__name__)
_ROOM = 200
"""Messages that wait for one channel; once they are so many, the user with the most loses the newest."""
MOST_AN_HOUR = 100
"""Messages about one user's chains that one channel takes in an hour: makers of many chains flood nobody."""
_HOUR = 3_600.0
PAUSES = (5.0, 30.0, 120.0, 600.0)
"""Seconds before each further attempt."""


@dataclass(slots=True)
class _Lane:
    """What waits for one user, or (without a user) for the site."""

    waiting: deque[Notice] = field(default_factory=deque)
    attempts: int = 0
    """Made with the first of them."""
    due: float = 0.0


class Courier:
    """Delivers by one channel; ``told`` hears ``sent``, ``failed`` or ``dropped`` of each message."""

    def __init__(
        self,
        channel: Channel,
        told: Callable[[str, str], None],
        pauses: Sequence[float] = PAUSES,
        room: int = _ROOM,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channel = channel
        self._now = now
        self._taken: dict[str, deque[float]] = {}
        """When each user's messages of the last hour came."""
        self._told = told
        self._pauses = pauses
        self._room = room
        self._lanes: dict[str, _Lane] = {}
        """By owner; whose turn is next comes first."""
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"notify-{channel.name}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Send it soon, if this channel wants it; never waits. What finds no room is dropped.

        So is what is beyond its user's share of the hour.
        """
        if not self.channel.wants(notice):
            return
        with self._changed:
            why = self._over_share(notice.owner)
            dropped = notice if why else self._make_room(notice)
            if dropped is not notice:
                self._lanes.setdefault(notice.owner, _Lane()).waiting.append(notice)
                self._changed.notify()
        if dropped is not None:
            self._told(self.channel.name, "dropped")
            why = why or f"{self._room} messages wait already"
            text = 'event=message_dropped channel=%s owner=%s reason="%s" text=%r'
            _LOG.warning(text, self.channel.name, dropped.owner, why, dropped.text)

    def close(self) -> None:
        """Begin no further attempt; what still waits is lost."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _over_share(self, owner: str) -> str:
        """Why the owner's next message is not taken, empty where it is; it is counted then."""
        if not owner:
            return ""
        since = self._now() - _HOUR
        if owner not in self._taken:
            self._taken = {known: times for known, times in self._taken.items() if times[-1] > since}
        times = self._taken.setdefault(owner, deque(maxlen=MOST_AN_HOUR))
        if len(times) == MOST_AN_HOUR and times[0] > since:
            return f"{MOST_AN_HOUR} messages about this user's chains within an hour"
        times.append(self._now())
        return ""

    def _make_room(self, notice: Notice) -> Notice | None:
        """The message that is dropped for ``notice``, which may be that itself."""
        held = {owner: len(lane.waiting) for owner, lane in self._lanes.items()}
        if sum(held.values()) < self._room:
            return None
        heaviest = find_displaced(held, notice.owner)
        return notice if heaviest is None else self._lanes[heaviest].waiting.pop()

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            owner, notice = turn
            result = self._attempt(owner, notice)
            if result:
                self._told(self.channel.name, result)

    def _next(self) -> tuple[str, Notice] | None:
        """The next message to try, once one is due; ``None`` at the end."""
        with self._changed:
            while not self._ended:
                self._lanes = {owner: lane for owner, lane in self._lanes.items() if lane.waiting}
                now = time.monotonic()
                for owner, lane in self._lanes.items():
                    if lane.due <= now and lane.waiting:
                        self._lanes[owner] = self._lanes.pop(owner)  # from now on the last
                        return owner, lane.waiting.popleft()
                due = min((lane.due for lane in self._lanes.values()), default=None)
                self._changed.wait(None if due is None else due - now)
            return None

    def _attempt(self, owner: str, notice: Notice) -> str:
        """Try once; what came of the message, empty where it is to be retried."""
        try:
            self.channel.send(notice)
        except Undeliverable as error:
            _LOG.warning("%s: %s: %s", self.channel.name, error, notice.text)
            if error.passing and self._defer(owner, notice):
                return ""
            result = "failed"
        except Exception:
            result = "failed"
            _LOG.exception("%s: a fault of this program, report it", self.channel.name)
        else:
            result = "sent"
        with self._changed:
            self._lanes[owner].attempts = 0
        return result

    def _defer(self, owner: str, notice: Notice) -> bool:
        """Put it back in front of its user's other messages, unless it was tried often enough."""
        with self._changed:
            lane = self._lanes[owner]
            if lane.attempts >= len(self._pauses):
                return False
            lane.waiting.appendleft(notice)
            lane.due = time.monotonic() + self._pauses[lane.attempts]
            lane.attempts += 1
            return True
