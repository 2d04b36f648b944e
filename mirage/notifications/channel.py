"""Channels: one way to somebody each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.domain.notice import Notice


class Undeliverable(MirageError):
    """A message did not get through; the text holds no secret."""

    def __init__(self, problem: str, *, passing: bool) -> None:
        super().__init__(problem)
        self.passing = passing
        """Whether trying again may help."""


class Channel(Protocol):
    """Sends messages."""

    @property
    def name(self) -> str:
        """For logs and metrics."""

    def wants(self, notice: Notice) -> bool:
        """Whether such a message goes this way."""

    def send(self, notice: Notice) -> None:
        """Deliver one; takes some seconds at most. Raises ``Undeliverable``."""
