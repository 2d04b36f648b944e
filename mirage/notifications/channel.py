"""Port of a notification channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.domain.notice import Notice


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
