"""HTTP to one daemon, over its Unix socket or over TCP; one connection a request."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage.client.boundedconnection import BoundedConnection, BoundedTlsConnection
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

        ``timeout``: seconds for the whole exchange.

        ``target`` begins behind ``/api/v1``. Raises ``DaemonUnreachable``, and ``Refusal`` with the daemon's
        words.
        """
        with self._request(method, f"{ROOT}{target}", document, headers, timeout) as (response, _):
            content = _read_whole(response)
        return self._answer(response.status, content)

    def ask_root(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """``ask`` with GET, for addresses next to the API: ``/healthz``, ``/version``."""
        with self._request("GET", target, None, _NO_HEADERS, timeout) as (response, _):
            content = _read_whole(response)
        return self._answer(response.status, content)

    def lines(self, target: str, headers: Mapping[str, str], *, timeout: float) -> Iterator[str]:
        """The lines of an answer that continues, until the daemon ends it.

        Raises ``DaemonUnreachable``, also where no whole line has come for ``timeout`` seconds, and ``Refusal``.
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
            said = f"{self.address} answers with status {status}: it leads to another address; name that one"
            raise DaemonUnreachable(said)
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
            raise Unanswered(f"{self.address}: the daemon did not answer in {timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(f"{self.address}: the daemon went away before it answered: {error!r}") from error
        finally:
            connection.close()

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _connection(self, timeout: float) -> BoundedConnection:
        """Connected. Raises ``DaemonUnreachable``."""
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
        raise http.client.HTTPException(f"the answer has more than {_LARGEST >> 20} MiB")
    if response.length:
        raise http.client.IncompleteRead(content, response.length)
    return content


def _no_daemon(address: Address, error: OSError) -> str:
    return (
        f"no daemon answers on {address} ({error.strerror or error}). "
        "Start one in your own name: `mirage daemon &`; or name the socket of a running one with --socket or "
        "$MIRAGE_SOCKET"
    )
