"""Requests to slurmrestd over TCP or a Unix socket, with a token read afresh for each."""

from __future__ import annotations

import base64
import http.client
import json
import pwd
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirage.atomic_file import read_regular
from mirage.client.deadline import BoundedConnection, BoundedTlsConnection
from mirage.documentreading import parse_foreign_json
from mirage.domain.errors import BackEndLost, ClusterUnavailable, ConfigError, NotPermitted
from mirage.domain.texts import without_secrets

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.slurm.rest.answers import Record

_LARGEST = 1 << 30
_PIECE = 1 << 16
_UNKNOWN_PATH = 9006  # ESLURM_REST_UNKNOWN_URL
_LOST = (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionResetError, BrokenPipeError)
"""After what slurmrestd was there and has gone without a whole answer."""
_LAST = 10_000_000_000
"""A later end of a token is taken for none."""
_TOKEN = re.compile(r"[\x21-\x7e]+")


class NoSuchPath(ClusterUnavailable):
    """The version that was found out is not offered any more, or never had such a path."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks. ``token_file`` empty: slurmrestd knows it from the socket (rest_auth/local)."""

    user: str
    token_file: str = ""

    def headers(self) -> dict[str, str]:
        """Headers that authenticate the user. The file holds a JWT, or what ``scontrol token`` prints.

        Raises ``NotPermitted`` naming a file that cannot be read or holds no token.
        """
        if not self.token_file:
            return {}
        return {"X-SLURM-USER-NAME": self.user, "X-SLURM-USER-TOKEN": self._token()}

    def check_expiry(self, now: Seconds) -> None:
        """Raise ``NotPermitted`` for a token that says itself that it has expired, or as ``headers``.

        Slurm 22.05 answers such a token as if the controller were down. Only Slurm can verify a token.
        """
        end = _expiry(self._token()) if self.token_file else None
        if end is not None and end <= now:
            ended = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise NotPermitted(
                f"no valid token for {self.user}: the token of {self.token_file} expired at {ended}; "
                f"replace it (scontrol token username={self.user})"
            )

    def _token(self) -> str:
        try:
            text = read_regular(self.token_file).decode("ascii").strip().removeprefix("SLURM_JWT=")
        except (OSError, UnicodeDecodeError) as error:
            raise NotPermitted(f"no token for {self.user}: cannot read {self.token_file}: {error}") from None
        if not _TOKEN.fullmatch(text):
            raise NotPermitted(f"no token for {self.user}: {self.token_file} does not hold exactly one")
        return text

    def __str__(self) -> str:
        return f"{self.user}, token of {self.token_file}" if self.token_file else self.user


@dataclass(frozen=True, slots=True)
class RestAddress:
    """The network address or Unix socket of slurmrestd."""

    text: str
    """As configured: ``http://host:port``, ``https://host`` or ``unix:/path``."""
    scheme: str
    host: str = ""
    port: int | None = None
    path: str = ""
    """``unix``: the socket. Else what stands before ``/slurm`` in every path (behind a proxy)."""
    server: int = 0
    """A UID that slurmrestd may have at a port of this machine, in addition to those of ``check_port``."""

    @classmethod
    def parse(cls, text: str, server_user: str = "") -> RestAddress:
        """Raises ``ConfigError`` for anything else, and for a user that this machine does not know."""
        try:
            parts = urlsplit(text)
            found = cls(text, parts.scheme, parts.hostname or "", parts.port, parts.path.rstrip("/"))
        except ValueError as error:
            raise ConfigError("slurmrestd", f"{without_secrets(text)!r}: {error}") from None
        usable = found.path.startswith("/") if found.scheme == "unix" else found.host
        if found.scheme not in ("http", "https", "unix") or not usable or parts.query or parts.username:
            raise ConfigError(
                "slurmrestd",
                f"{without_secrets(text)!r}: expected http://host:port, https://host or unix:/path/to/socket",
            )
        return replace(found, server=_uid_of(server_user)) if server_user else found

    def connect(self, timeout: float) -> BoundedConnection:
        """A connection for one exchange within ``timeout`` seconds, opened at its first use."""
        if self.scheme == "unix":
            return BoundedConnection("localhost", timeout=timeout, path=self.path)
        if self.scheme == "https":
            return BoundedTlsConnection(self.host, self.port, timeout=timeout)
        return BoundedConnection(self.host, self.port, timeout=timeout, trusted=(self.server,))

    def target(self, path: str) -> str:
        """The target of the request line; for HTTP, the path of the configured URL comes first."""
        return path if self.scheme == "unix" else self.path + path


@dataclass(frozen=True, slots=True)
class RestResponse:
    """A response of slurmrestd."""

    status: int
    body: Record
    """Empty where it was no JSON."""
    text: str = ""
    """The beginning of what was no JSON."""

    @property
    def errors(self) -> list[Record]:
        """The list of errors; one made of the text where a rejection was not JSON."""
        listed = self.body.get("errors") or []
        errors = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        if not errors and self.status >= 400:
            return [{"error": self.text or f"HTTP status {self.status}"}]
        return errors

    @property
    def unknown_path(self) -> bool:
        """Whether slurmrestd has no such path, which is not the same as no such job."""
        if self.status != 404:
            return False
        return not self.body or any(entry.get("error_number") == _UNKNOWN_PATH for entry in self.errors)


@dataclass(frozen=True, slots=True)
class RestClient:
    """One slurmrestd in the name of one user. Each request opens a separate connection: polls are far apart."""

    address: RestAddress
    credentials: Credentials
    timeout: float = 30.0
    """Seconds for a whole exchange, however its answer trickles in."""

    def ask(self, method: str, path: str, body: Record | None = None) -> RestResponse:
        """One request.

        Raises ``ClusterUnavailable`` where nothing whole came back, ``NotPermitted`` where the token is missing
        or rejected.
        """
        request = {"Accept": "application/json", **self.credentials.headers()}
        payload = None if body is None else json.dumps(body).encode()
        if payload is not None:
            request["Content-Type"] = "application/json"
        status, raw = self._exchange(method, self.address.target(path), payload, request)
        return self._judge(method, path, status, raw)

    def _exchange(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            try:
                return self._ask_once(method, target, payload, headers)
            except ConnectionResetError:
                # slurmrestd drops connections while it is busy. A query may be repeated, an action may not.
                if method != "GET":
                    raise
                return self._ask_once(method, target, payload, headers)
        except (OSError, http.client.HTTPException) as error:
            told = str(error) or type(error).__name__
            kind = BackEndLost if isinstance(error, _LOST) else ClusterUnavailable
            raise kind(f"slurmrestd at {self.address.text}: {method} {target}: {told}") from None

    def _ask_once(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = self.address.connect(self.timeout)
        try:
            connection.request(method, target, payload, headers)
            response = connection.getresponse()
            return response.status, _read_whole(response)
        finally:
            connection.close()

    def _judge(self, method: str, path: str, status: int, raw: bytes) -> RestResponse:
        where = f"slurmrestd at {self.address.text}: {method} {path}: status {status}"
        if status in (401, 403):
            raise NotPermitted(f"{where}: it does not accept {self.credentials} (has it expired?)")
        body = _parsed(raw)
        if body is not None:
            return RestResponse(status, body)
        shown = " ".join(raw[:200].decode("utf-8", "replace").split())
        if status < 400 or status == 429 or status >= 500:
            raise ClusterUnavailable(f"{where}: the answer is no JSON object: {shown!r}")
        return RestResponse(status, {}, shown)


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError("cluster.rest.server_user", f"no user {user!r} on this machine") from None


def _expiry(token: str) -> int | None:
    """The time that a JWT names as its end, not verified; ``None`` where it names none."""
    parts = token.split(".")
    try:
        claims = parse_foreign_json(base64.urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else None
        end = claims.get("exp") if isinstance(claims, dict) else None
        return int(end) if isinstance(end, int | float) and 0 <= end < _LAST else None
    except ValueError:
        return None


def _read_whole(response: http.client.HTTPResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST:
            raise http.client.HTTPException(f"more than {_LARGEST >> 20} MiB")
    if response.length:
        raise http.client.IncompleteRead(b"".join(pieces), response.length)
    return b"".join(pieces)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        found = parse_foreign_json(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
