"""HTTP to one daemon, over its Unix socket or TCP; one connection per request."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage.client.deadline import BoundedConnection, BoundedTlsConnection
from mirage.client.errors import DaemonUnreachable, Refusal, Unanswered

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from mirage.client.address import Address
    from mirage.client.deadline import Deadline

ROOT = "/api/v1"
TIMEOUT = 90.0
_LARGEST = 1 << 30
_LONGEST_LINE = 1 << 24
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Transport:
    """Sends requests to the daemon at one address; thread-safe."""

    address: Address
    token: str = field(default="", repr=False)
    """API token or Slurm JWT; not needed on the socket, where the kernel identifies the caller."""
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
        """Send a request and return the reply's document, ``None`` for an empty reply. ``document`` is sent as
        JSON.

        ``target``: path after ``/api/v1``; ``timeout``: seconds for the whole exchange. Raises
        ``DaemonUnreachable``, and ``Refusal`` with the daemon's message.
        """
        with self._request(method, f"{ROOT}{target}", document, headers, timeout) as (response, _):
            content = _read_whole(response)
        return self._answer(response.status, content)

    def ask_root(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """Send GET to an endpoint outside the API: ``/healthz``, ``/version``."""
        with self._request("GET", target, None, _NO_HEADERS, timeout) as (response, _):
            content = _read_whole(response)
        return self._answer(response.status, content)

    def lines(self, target: str, headers: Mapping[str, str], *, timeout: float) -> Iterator[str]:
        """Yield the lines of a streamed reply until the daemon ends it.

        Raises ``DaemonUnreachable``, also after ``timeout`` seconds without a whole line, and ``Refusal``.
        """
        with self._request("GET", f"{ROOT}{target}", None, headers, timeout) as (response, deadline):
            if response.status >= 400:
                self._answer(response.status, _read_whole(response))
            while line := response.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise http.client.LineTooLong("line of a stream")
                deadline.renew()
                yield line.decode("utf-8", "replace").rstrip("\r\n")

    def _answer(self, status: int, content: bytes) -> Any:
        if 300 <= status < 400:
            said = f"{self.address} redirects (status {status}); use the URL that it redirects to"
            raise DaemonUnreachable(said)
        try:
            answer = json.loads(content) if content else None
        except (ValueError, RecursionError):
            if status >= 400:
                raise Refusal(status, f"{self.address} replied with status {status}") from None
            raise DaemonUnreachable(f"{self.address}: the server is not a Mirage daemon") from None
        if status >= 400:
            detail = answer.get("detail") if isinstance(answer, dict) else None
            raise Refusal(status, str(detail or f"{self.address} replied with status {status}"))
        return answer

    @contextmanager
    def _request(
        self, method: str, target: str, document: object, headers: Mapping[str, str], timeout: float
    ) -> Iterator[tuple[http.client.HTTPResponse, Deadline]]:
        body = None if document is None else json.dumps(document).encode()
        sent = {"Accept": "application/json", **self._credentials(), **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = self._connection(timeout)
        try:
            connection.request(method, target, body, sent)
            yield connection.getresponse(), connection.deadline
        except TimeoutError as error:
            raise Unanswered(f"{self.address}: no reply from the daemon within {timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(
                f"{self.address}: the daemon closed the connection without a reply: {error!r}"
            ) from error
        finally:
            connection.close()

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _connection(self, timeout: float) -> BoundedConnection:
        """Return an open connection. Raises ``DaemonUnreachable``."""
        address = self.address
        if address.tls:
            connection: BoundedConnection = BoundedTlsConnection(
                address.host, address.port, timeout=timeout, context=self.tls
            )
        else:
            host = address.host or "localhost"
            connection = BoundedConnection(host, address.port, timeout=timeout, path=address.socket, trusted=())
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise DaemonUnreachable(_no_daemon(address, error)) from error
        return connection


def _read_whole(response: http.client.HTTPResponse) -> bytes:
    content = response.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise http.client.HTTPException(f"the reply exceeds {_LARGEST >> 20} MiB")
    if response.length:
        raise http.client.IncompleteRead(content, response.length)
    return content


def _no_daemon(address: Address, error: OSError) -> str:
    return (
        f"no daemon answers on {address} ({error.strerror or error}). Start one: `mirage daemon &`, or where "
        "no process may stay `mirage install cron`; or give the socket of a running one with --socket or "
        "$MIRAGE_SOCKET"
    )
