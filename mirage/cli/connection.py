"""Connection of commands to the daemon: ``mirage.client`` with exit codes, and shell completion."""

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

_PATIENCE = 1.0
"""Timeout in seconds; the user waits for it."""


def complete_chain(incomplete: str) -> list[tuple[str, str]]:
    """Return IDs of the user's chains with this prefix, each with state and name."""

    try:
        document = connect().transport.ask("GET", "/chains?limit=1000", timeout=_PATIENCE)
        found = [(str(chain["id"]), f"{chain['state']}, {chain['name']}") for chain in document["chains"]]
    except Exception:  # a shell cannot show errors of completion
        return []
    return [(chain, about) for chain, about in found if chain.startswith(incomplete)]


_EXIT = {401: 4, 403: 4, 404: 3, 409: 4}
"""Exit codes by HTTP status; 1 for any other."""
_UNREACHABLE = 5


def connect(path: str = "") -> Client:
    """Connect to a socket or URL; by default that of the environment, the user's daemon or the system's."""
    return Client(path or str(_default(os.environ, os.getuid())))


def _default(environ: Mapping[str, str], uid: int) -> Address:
    """Find the daemon as ``mirage.client`` does; without a name, by the rules for the daemon's directories."""
    from mirage.config.places import SOCKET, daemon_socket, default_places

    for name in SOCKET_VARIABLES:
        if environ.get(name):
            return Address(socket=environ[name])
    if environ.get(URL_VARIABLE):
        return Address.parse(environ[URL_VARIABLE])
    return Address(socket=str(daemon_socket(default_places(environ, uid).runtime / SOCKET)))


def exit_code(error: ClientError) -> int:
    """Return 3 for not found, 4 for rejected, 5 for no daemon, else 1."""
    if isinstance(error, DaemonUnreachable):
        return _UNREACHABLE
    return _EXIT.get(error.status, 1) if isinstance(error, Refusal) else 1


@contextmanager
def exit_codes(without_daemon: Callable[[], str] | None = None) -> Iterator[None]:
    """Turn errors inside into one line on stderr and an exit code.

    ``without_daemon``: advice to print if no daemon replies.
    """
    try:
        yield
    except ClientError as error:
        absent = isinstance(error, DaemonUnreachable) and not isinstance(error, Unanswered)
        show_error(ClientError(f"{error}; {without_daemon()}") if absent and without_daemon else error)
        raise SystemExit(exit_code(error)) from None
