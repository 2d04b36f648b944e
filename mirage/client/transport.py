"""HTTP to one daemon, over its Unix socket or over TCP; one connection a request."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage.client.errors import DaemonUnreachable, Refusal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from mirage.client.address import Address

ROOT = "/api/v1"
TIMEOUT = 90.0
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Transport:
    """Asks the daemon at one address. Safe to share between threads."""

    address: Address
    token: str = field(default="", repr=False)
    """An API token, or one of Slurm's; the socket needs none, the kernel says who asks there."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def ask(
        self,
        method: str,
        target: str,
        document: object = None,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        timeout: float = TIMEOUT,
    ) -> Any:
        """The document that answers, ``None`` for an empty answer. ``document`` is sent as JSON.

        ``target`` begins behind ``/api/v1``. Raises ``DaemonUnreachable``, and ``Refusal`` with the daemon's
        words.
        """
        with self._request(method, f"{ROOT}{target}", document, headers, timeout) as response:
            content = response.read()
        return self._answer(response.status, content)

    def ask_root(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """``ask`` with GET, for addresses beside the interface: ``/healthz``, ``/version``."""
        with self._request("GET", target, None, _NO_HEADERS, timeout) as response:
            content = response.read()
        return self._answer(response.status, content)

    def lines(self, target: str, headers: Mapping[str, str], *, timeout: float) -> Iterator[str]:
        """The lines of an answer that goes on, until the daemon ends it.

        Raises ``DaemonUnreachable``, also where nothing has come for ``timeout`` seconds, and ``Refusal``.
        """
        with self._request("GET", f"{ROOT}{target}", None, headers, timeout) as response:
            if response.status >= 400:
                self._answer(response.status, response.read())
            for line in response:
                yield line.decode("utf-8", "replace").rstrip("\r\n")

    def _answer(self, status: int, content: bytes) -> Any:
        try:
            answer = json.loads(content) if content else None
        except (ValueError, RecursionError):
            if status >= 400:
                raise Refusal(status, f"{self.address} answers with status {status}") from None
            raise DaemonUnreachable(f"{self.address}: what answers there is not a Mirage daemon") from None
        if status >= 400:
            detail = answer.get("detail") if isinstance(answer, dict) else None
            raise Refusal(status, str(detail or f"{self.address} answers with status {status}"))
        return answer

    @contextmanager
    def _request(
        self, method: str, target: str, document: object, headers: Mapping[str, str], timeout: float
    ) -> Iterator[http.client.HTTPResponse]:
        body = None if document is None else json.dumps(document).encode()
        sent = {"Accept": "application/json", **self._credentials(), **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = self._connection(timeout)
        try:
            connection.request(method, target, body, sent)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise DaemonUnreachable(
                f"{self.address}: the daemon went away before it answered: {error!r}"
            ) from error
        finally:
            connection.close()

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        """Connected. Raises ``DaemonUnreachable``."""
        address = self.address
        if address.tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host, address.port, timeout=timeout, context=self.tls
            )
        else:
            connection = http.client.HTTPConnection(address.host or "localhost", address.port, timeout=timeout)
        try:
            if address.socket:
                connection.sock = _connected(address.socket, timeout)
            else:
                connection.connect()
        except OSError as error:
            connection.close()
            raise DaemonUnreachable(_no_daemon(address, error)) from error
        return connection


def _connected(path: str, timeout: float) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout)
    try:
        connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


def _no_daemon(address: Address, error: OSError) -> str:
    return (
        f"no daemon answers on {address} ({error.strerror or error}). "
        "Start one in your own name: `mirage daemon &`; or name the socket of a running one with --socket or "
        "$MIRAGE_SOCKET"
    )
