"""What can go wrong between a program and the daemon, split by what one does about it."""

from __future__ import annotations

_BUSY = (408, 425, 429)


class ClientError(Exception):
    """Base of all that this package raises."""


class DaemonUnreachable(ClientError):
    """Nobody answers, or what answers is no Mirage daemon: start it, or name another address."""


class Unanswered(DaemonUnreachable):
    """The request was sent and no answer came: the daemon may have done what it was asked to do."""


class Refusal(ClientError):
    """The daemon's problem document (RFC 9457): it has understood and says no."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        """HTTP's: 401, 403 not permitted, 404 no such thing, 409 not now, 422 badly described, 429 too often."""
        self.detail = detail

    @property
    def permanent(self) -> bool:
        """Whether the same request gets the same answer again: not where a daemon or a proxy is busy or fails."""
        return self.status < 500 and self.status not in _BUSY


class Missing(ClientError):
    """A library that is wanted for this alone is not installed."""
