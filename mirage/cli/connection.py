"""The command line's end of the daemon's socket: ``mirage.client``, with the exit codes of a command."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.cli.printing import show_error
from mirage.client.address import SOCKET_VARIABLES, URL_VARIABLE, Address
from mirage.client.client import Client
from mirage.client.errors import ClientError, DaemonUnreachable, Refusal, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_EXIT = {401: 4, 403: 4, 404: 3, 409: 4}
"""Of the daemon's rejections; any other is an error like others."""
_UNREACHABLE = 5


def connect(path: str = "") -> Client:
    """To the socket or URL ``path``; not given: what the environment names, one's own daemon, or the system's."""
    return Client(path or str(_default(os.environ, os.getuid())))


def _default(environ: Mapping[str, str], uid: int) -> Address:
    """As ``mirage.client`` finds it, but where nothing names a daemon by the rules that place it."""
    from mirage.config.places import SOCKET, daemon_socket, default_places

    for name in SOCKET_VARIABLES:
        if environ.get(name):
            return Address(socket=environ[name])
    if environ.get(URL_VARIABLE):
        return Address.parse(environ[URL_VARIABLE])
    return Address(socket=str(daemon_socket(default_places(environ, uid).runtime / SOCKET)))


def exit_code(error: ClientError) -> int:
    """3 not found, 4 rejected, 5 no daemon, 1 anything else."""
    if isinstance(error, DaemonUnreachable):
        return _UNREACHABLE
    return _EXIT.get(error.status, 1) if isinstance(error, Refusal) else 1


@contextmanager
def exit_codes(without_daemon: Callable[[], str] | None = None) -> Iterator[None]:
    """Errors inside become one line on stderr and the exit code of their kind.

    ``without_daemon``: what to do where no daemon answers, shown then.
    """
    try:
        yield
    except ClientError as error:
        absent = isinstance(error, DaemonUnreachable) and not isinstance(error, Unanswered)
        show_error(ClientError(f"{error}; {without_daemon()}") if absent and without_daemon else error)
        raise SystemExit(exit_code(error)) from None
