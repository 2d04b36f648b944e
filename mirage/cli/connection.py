"""Connection of commands to the daemon: ``mirage.client`` with exit codes, and shell completion.

Where cron or the chains' own jobs call ``mirage cycle``, a command starts a brief daemon for itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.cli.printing import show_error
from mirage.client.address import SOCKET_VARIABLES, URL_VARIABLE, Address
from mirage.client.client import Client
from mirage.client.errors import ClientError, DaemonUnreachable, Refusal, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirage.daemon.brief import Calls

_PATIENCE = 1.0
"""Timeout in seconds; the user waits for it."""


def complete_chain(incomplete: str) -> list[tuple[str, str]]:
    """Return IDs of the user's chains with this prefix, each with state and name."""

    try:
        document = connect(starting=False).transport.ask("GET", "/chains?limit=1000", timeout=_PATIENCE)
        found = [(str(chain["id"]), f"{chain['state']}, {chain['name']}") for chain in document["chains"]]
    except Exception:  # a shell cannot show errors of completion
        return []
    return [(chain, about) for chain, about in found if chain.startswith(incomplete)]


_EXIT = {401: 4, 403: 4, 404: 3, 409: 4}
"""Exit codes by HTTP status; 1 for any other."""
_UNREACHABLE = 5


_LINGER = 20
"""Seconds that a brief daemon stays after the last request."""
_START = 90.0
"""Seconds to wait until it answers: a killed process keeps the lease for 45 s."""
_LOG_FILE = "cycle.log"
_LONGEST_LOG = 1 << 20


def connect(path: str = "", *, starting: bool = True) -> Client:
    """Connect to a socket or URL; by default that of the environment, the user's daemon or the system's.

    ``starting``: start a brief daemon where the user's chains have one only at times. Raises
    ``DaemonUnreachable``.
    """
    return Client(path or str(_default(os.environ, os.getuid(), starting=starting)))


def _default(environ: Mapping[str, str], uid: int, *, starting: bool = False) -> Address:
    """Find the daemon as ``mirage.client`` does; without a name, by the rules for the daemon's directories."""
    from mirage.config.places import daemon_socket, default_places, used_places

    for name in SOCKET_VARIABLES:
        if environ.get(name):
            return Address(socket=environ[name])
    if environ.get(URL_VARIABLE):
        return Address.parse(environ[URL_VARIABLE])
    state, own = used_places(environ, uid)
    if default_places(environ, uid).self_driven:
        if starting and not _answers(own):
            _start_brief(own, state)
        return Address(socket=str(own))
    if (calls := _calls(state)) is None:
        return Address(socket=str(daemon_socket(own)))
    if starting and not _answers(own):
        _check_called(own, calls)
        _start_brief(own, state)
    return Address(socket=str(own))


def names_daemon() -> bool:
    """Whether a variable of the environment names the daemon."""
    return any(os.environ.get(name) for name in (*SOCKET_VARIABLES, URL_VARIABLE))


def is_served() -> bool:
    """Whether a daemon answers, or is called by cron, or is named by a variable: no command need start another."""
    from mirage.config.places import daemon_socket, used_places

    if names_daemon():
        return True
    state, own = used_places(os.environ, os.getuid())
    return _calls(state) is not None or _answers(daemon_socket(own))


def _calls(state: Path) -> Calls | None:
    """The calls of ``mirage cycle``, if the state directory is the user's own.

    Root starts no daemon in the directory of the site's account. What reads the file is imported only if needed.
    """
    from mirage.config.places import CALLS

    try:
        owners = {(state / CALLS).lstat().st_uid, state.stat().st_uid}
    except OSError:
        return None
    if owners != {os.geteuid()}:
        return None
    from mirage.daemon.brief import read_calls

    return read_calls(state)


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(_PATIENCE)
            tried.connect(str(path))
    except OSError:
        return False
    return True


def _check_called(path: Path, calls: Calls) -> None:
    if calls.ended(time.time()):
        last = time.strftime("%Y-%m-%d %H:%M", time.localtime(calls.at))
        raise DaemonUnreachable(
            f"no daemon answers on {path}, and the last `mirage cycle` ran at {last}: its line in crontab is gone "
            "or fails. `mirage install cron` writes it again; or start a daemon: `mirage daemon &`"
        )


def _start_brief(path: Path, state: Path) -> None:
    """Start a daemon that ends when it is no longer used; return when it answers. Raises ``DaemonUnreachable``."""
    from mirage.ownprocess import own_python

    log = state / _LOG_FILE
    with os.fdopen(
        os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "ab"
    ) as output:
        if output.tell() > _LONGEST_LOG:
            output.truncate(0)
        words = own_python("-m", "mirage", "cycle", f"--linger={_LINGER}s")
        null = subprocess.DEVNULL
        process = subprocess.Popen(  # noqa: S603 - this program
            words, stdin=null, stdout=output, stderr=output, start_new_session=True
        )
    limit = time.monotonic() + _START
    while time.monotonic() < limit:
        if _answers(path):
            return
        if process.poll() not in (None, 0):
            break
        time.sleep(0.05)
    raise DaemonUnreachable(f"the daemon that this command has started does not answer on {path}; see {log}")


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
