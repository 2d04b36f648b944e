"""Delivery of messages: the port of a channel, subject and body of a message, and the queue."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mirage.domain.bounds import format_instant
from mirage.domain.errors import MirageError
from mirage.domain.shares import find_displaced
from mirage.domain.texts import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.journal import Notice


class Undeliverable(MirageError):
    """A message was not delivered; the text contains no secret."""

    def __init__(self, problem: str, *, passing: bool) -> None:
        super().__init__(problem)
        self.passing = passing
        """Whether a retry may help."""


class Channel(Protocol):
    """Sends messages."""

    @property
    def name(self) -> str:
        """Name for logs and metrics."""

    def wants(self, notice: Notice) -> bool:
        """Return whether this channel sends such a message."""

    def send(self, notice: Notice) -> None:
        """Deliver one message within some seconds. Raises ``Undeliverable``."""


_LONGEST_HEADING = 120

_BODY = """\
{text}

Event:  {event}
Time:   {time}
{chain}
Mirage runs chains of Slurm jobs. Its configuration requests this message.
"""
_CHAIN = """\
Chain:  {name} ({chain}) of {owner}

For the reason see `mirage chain log {chain}`.
"""


def heading(notice: Notice) -> str:
    """Return the subject line."""
    about = f'chain "{notice.name}"' if notice.chain else "Mirage"
    return _one_line(f"{about}: {notice.kind}{', over' if notice.over else ''}")[:_LONGEST_HEADING]


def body(notice: Notice) -> str:
    """Return the message in plain text."""
    chain = _CHAIN.format(name=_one_line(notice.name), chain=notice.chain, owner=notice.owner)
    return _BODY.format(
        text=storable(notice.text),
        event=notice.kind,
        time=format_instant(notice.time),
        chain=chain if notice.chain else "",
    )


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in storable(text)).split())


_LOG = logging.getLogger(__name__)
_ROOM = 200
"""Maximum number of messages in one queue; when it is full, the user with the most loses the newest."""
MOST_AN_HOUR = 100
"""Maximum number of messages per hour and channel about one user's chains, against floods."""
_HOUR = 3_600.0
PAUSES = (5.0, 30.0, 120.0, 600.0)
"""Seconds before each further attempt."""


@dataclass(slots=True)
class _Lane:
    """Waiting messages of one user, or (without a user) of the site."""

    waiting: deque[Notice] = field(default_factory=deque)
    attempts: int = 0
    """Attempts with the first message."""
    due: float = 0.0


class DeliveryQueue:
    """Delivers by one channel; ``told`` is called with ``sent``, ``failed`` or ``dropped`` for each message."""

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
        """Times of each user's messages within the last hour."""
        self._told = told
        self._pauses = pauses
        self._room = room
        self._lanes: dict[str, _Lane] = {}
        """By owner, the next in turn first."""
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"notify-{channel.name}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Queue a message if the channel takes it; never waits.

        Drops a message if the queue is full or its user exceeds the hourly limit.
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
            why = why or f"{self._room} messages are already waiting"
            text = 'event=message_dropped channel=%s owner=%s reason="%s" text=%r'
            _LOG.warning(text, self.channel.name, dropped.owner, why, dropped.text)

    def close(self) -> None:
        """Start no further attempt; waiting messages are lost."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _over_share(self, owner: str) -> str:
        """Return why the owner exceeds the hourly limit; else count the message and return an empty text."""
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
        """Return the message to drop in favour of ``notice``, or ``notice`` itself, or ``None``."""
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
        """Wait for the next due message; ``None`` at the end."""
        with self._changed:
            while not self._ended:
                self._lanes = {owner: lane for owner, lane in self._lanes.items() if lane.waiting}
                now = time.monotonic()
                for owner, lane in self._lanes.items():
                    if lane.due <= now and lane.waiting:
                        self._lanes[owner] = self._lanes.pop(owner)  # its next turn comes last
                        return owner, lane.waiting.popleft()
                due = min((lane.due for lane in self._lanes.values()), default=None)
                self._changed.wait(None if due is None else due - now)
            return None

    def _attempt(self, owner: str, notice: Notice) -> str:
        """Try once; return the result, or an empty text if the message will be retried."""
        try:
            self.channel.send(notice)
        except Undeliverable as error:
            _LOG.warning("%s: %s: %s", self.channel.name, error, notice.text)
            if error.passing and self._defer(owner, notice):
                return ""
            result = "failed"
        except Exception:
            result = "failed"
            text = "%s: internal error (bug in Mirage); report it with the traceback below"
            _LOG.exception(text, self.channel.name)
        else:
            result = "sent"
        with self._changed:
            self._lanes[owner].attempts = 0
        return result

    def _defer(self, owner: str, notice: Notice) -> bool:
        """Put the message back in front of its user's other messages, unless all attempts are used up."""
        with self._changed:
            lane = self._lanes[owner]
            if lane.attempts >= len(self._pauses):
                return False
            lane.waiting.appendleft(notice)
            lane.due = time.monotonic() + self._pauses[lane.attempts]
            lane.attempts += 1
            return True
