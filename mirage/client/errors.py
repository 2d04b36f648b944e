"""Errors between a program and the daemon, by what the program can do about them."""

from __future__ import annotations

_BUSY = (408, 425, 429)


class ClientError(Exception):
    """Base class of all errors of this package."""


class DaemonUnreachable(ClientError):
    """No server replies, or the server is no Mirage daemon: start one, or use another address."""


class Unanswered(DaemonUnreachable):
    """The request was sent and no reply came: the daemon may have executed it."""


class Refusal(ClientError):
    """Problem document of the daemon (RFC 9457): it rejects the request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        """HTTP status: 401 unauthenticated, 403 denied, 404 not found, 409 conflict, 422 invalid, 429 too many."""
        self.detail = detail

    @property
    def permanent(self) -> bool:
        """Whether a retry gets the same reply: false if a daemon or a proxy is busy or fails."""
        return self.status < 500 and self.status not in _BUSY


class Missing(ClientError):
    """An optional library that this call needs is not installed."""
