"""The command line's end of the daemon's socket."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "MIRAGE_SOCKET"
"""Environment variable that names the socket."""

_TIMEOUT = 90.0
_EXIT = {403: 4, 404: 3, 409: 4}


class DaemonUnreachable(MirageError):
    """Nobody answers on the socket."""


class Refusal(MirageError):
    """The daemon's problem document, as an error with the exit code of its kind."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.exit_code = _EXIT.get(status, 1)


@dataclass(frozen=True, slots=True)
class Connection:
    """Asks the daemon behind one socket."""

    path: Path

    def ask(self, method: str, target: str, document: object = None, *, timeout: float = _TIMEOUT) -> Any:
        """The document that answers, ``None`` for an empty answer. ``document`` is sent as JSON.

        Raises ``DaemonUnreachable``, and ``Refusal`` with the daemon's own words.
        """
        body = None if document is None else json.dumps(document).encode()
        status, content = self.send(method, f"/api/v1{target}", body, timeout=timeout)
        try:
            answer = json.loads(content) if content else None
        except ValueError:
            raise DaemonUnreachable(f"{self.path}: what answers there is not a Mirage daemon") from None
        if status >= 400:
            detail = answer.get("detail") if isinstance(answer, dict) else None
            raise Refusal(status, str(detail or f"the daemon answers with status {status}"))
        return answer

    def send(self, method: str, target: str, body: bytes | None, *, timeout: float) -> tuple[int, bytes]:
        """One HTTP request; status and body of the answer. Raises ``DaemonUnreachable``."""
        import http.client

        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        try:
            connection.sock = self._connected(timeout)
            connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DaemonUnreachable(f"{self.path}: the daemon went away before it answered: {error!r}") from error
        finally:
            connection.close()

    def _connected(self, timeout: float) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(timeout)
        try:
            connected.connect(str(self.path))
        except OSError as error:
            connected.close()
            raise DaemonUnreachable(_no_daemon(self.path, error)) from error
        return connected


def connect(path: str = "") -> Connection:
    """To the socket ``path``; not given: that of ``$MIRAGE_SOCKET``, one's own daemon, or the system's."""
    return Connection(Path(path) if path else _default(os.environ, os.getuid()))


def _default(environ: Mapping[str, str], uid: int) -> Path:
    from mirage.config.places import SOCKET, daemon_socket, default_places

    named = environ.get(VARIABLE) or environ.get("MIRAGE_API__SOCKET")
    if named:
        return Path(named)
    return daemon_socket(default_places(environ, uid).runtime / SOCKET)


def _no_daemon(path: Path, error: OSError) -> str:
    return (
        f"no daemon answers on {path} ({error.strerror or error}). Start one in your own name: `mirage daemon &`; "
        f"or name the socket of a running one with --socket or ${VARIABLE}"
    )


@contextmanager
def exit_codes() -> Iterator[None]:
    """Errors inside become one line on stderr and the exit code of their kind."""
    try:
        yield
    except (DaemonUnreachable, Refusal) as error:
        print(f"mirage: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(error.exit_code if isinstance(error, Refusal) else 5) from None
