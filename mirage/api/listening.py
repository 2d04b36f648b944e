"""The network address and its certificate; an address that other machines reach requires TLS or a TLS proxy."""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509

from mirage.api.access.protocol import PeerProtocol
from mirage.atomic_file import read_regular
from mirage.domain.bounds import format_instant
from mirage.domain.errors import ConfigError
from mirage.domain.texts import host_in_url

if TYPE_CHECKING:
    import asyncio

    from mirage.domain.job import Seconds

_LOG = logging.getLogger(__name__)
_SOON: Seconds = 14 * 86_400


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity of a certificate with its chain, in epoch seconds."""

    start: Seconds
    end: Seconds

    def problem(self, now: Seconds) -> str:
        """Return why clients reject it, or will within 14 days; empty if neither."""
        if self.end <= now:
            return f"it expired at {format_instant(self.end)}"
        if self.start > now:
            return f"it is not valid before {format_instant(self.start)}"
        return f"it expires at {format_instant(self.end)}" if self.end - now < _SOON else ""

    def covers(self, now: Seconds) -> bool:
        """Return whether it is valid at ``now``."""
        return self.start <= now < self.end


def read_validity(file: str) -> Validity:
    """Read the validity of the certificates in a PEM file. Raises ``ConfigError``."""
    try:
        found = x509.load_pem_x509_certificates(read_regular(Path(file)))
        starts = [int(each.not_valid_before_utc.timestamp()) for each in found]
        ends = [int(each.not_valid_after_utc.timestamp()) for each in found]
    except (OSError, ValueError) as error:
        raise ConfigError("api.certificate", f"{file}: {error}") from error
    return Validity(max(starts), min(ends))


def log_validity(file: str) -> None:
    """Log a warning if clients reject the certificate, or soon will. Raises nothing."""
    try:
        problem = read_validity(file).problem(int(time.time()))
    except ConfigError as error:
        problem = error.problem
    if problem:
        _LOG.warning(
            'event=certificate_invalid file=%s reason="%s; renew it and restart the daemon"', file, problem
        )


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})")
_WAITING = 128
_OTHERS_DOING = frozenset((errno.EADDRINUSE, errno.EADDRNOTAVAIL))


class AddressTaken(ConfigError):
    """The address is not available now: another process listens there, or this machine does not have it yet."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Network address of the API."""

    host: str
    port: int
    """Port; 0: any free one."""
    certificate: str = ""
    key: str = ""
    proxies: tuple[str, ...] = ()
    """Proxies whose header with the client address is trusted."""

    @classmethod
    def of(cls, address: str, certificate: str = "", key: str = "", proxies: tuple[str, ...] = ()) -> Listening:
        """Parse an address. Raises ``ConfigError`` for an invalid one, or one open to others without TLS."""
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found[3]) > 65_535:
            raise ConfigError(
                "api.listen", f"{address!r}: expected an address such as 127.0.0.1:8421 or [::1]:8421"
            )
        listening = cls("127.0.0.1" if found[2] == "localhost" else found[1] or found[2], int(found[3]))
        listening = cls(listening.host, listening.port, certificate, key, proxies)
        listening._check()
        return listening

    @property
    def url(self) -> str:
        """URL without a path."""
        host = host_in_url(self.host)
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"

    def bind(self) -> socket.socket:
        """Return a listening socket. Raises ``ConfigError``: ``AddressTaken`` if it may be available later."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self.host, self.port))
            listening.listen(_WAITING)
        except OSError as error:
            listening.close()
            kind = AddressTaken if error.errno in _OTHERS_DOING else ConfigError
            raise kind("api.listen", f"{self.host}:{self.port} is not available: {error.strerror}") from error
        return listening

    def check(self) -> None:
        """Raise ``ConfigError`` if no server can listen there; a server that already does is no error."""
        try:
            self.bind().close()
        except AddressTaken as error:
            if not (isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE):
                raise
        if self.certificate:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate, self.key or None, password="")
            except (OSError, ssl.SSLError) as error:
                raise unusable_certificate(error) from error

    def options(self) -> dict[str, Any]:
        """Return the options for uvicorn."""
        tls = {"ssl_certfile": self.certificate, "ssl_keyfile": self.key or None} if self.certificate else {}
        return {
            **tls,
            "http": _guarded(self.proxies) if self._is_plain_and_open() else PeerProtocol,
            "proxy_headers": bool(self.proxies),
            "forwarded_allow_ips": list(self.proxies),
        }

    def _check(self) -> None:
        _networks(self.proxies)
        for key, file in (("api.certificate", self.certificate), ("api.certificate_key", self.key)):
            if file and not Path(file).is_file():
                raise ConfigError(key, f"there is no file {file}")
        if self.key and not self.certificate:
            raise ConfigError("api.certificate_key", "set without api.certificate; set both")
        if self._is_plain_and_open() and not self.proxies:
            raise ConfigError(
                "api.listen",
                f"other machines can reach {self.host}, and tokens would cross the network unencrypted: "
                "set api.certificate, or list the TLS proxy in api.trusted_proxies",
            )

    def _is_plain_and_open(self) -> bool:
        try:
            return not self.certificate and not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ConfigError("api.listen", f"{self.host!r} is not an IP address") from None


def unusable_certificate(error: Exception) -> ConfigError:
    """Return the error for a certificate that cannot be used with its key."""
    return ConfigError("api.certificate", f"cannot be used with its key: {error}")


def _networks(proxies: tuple[str, ...]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    try:
        return [ipaddress.ip_network(each) for each in proxies]
    except ValueError as error:
        raise ConfigError("api.trusted_proxies", f"expected IP addresses or networks: {error}") from None


def _guarded(proxies: tuple[str, ...]) -> type[PeerProtocol]:
    """HTTP for the proxies and this machine only: tokens from others would be unencrypted."""
    allowed = _networks(proxies)

    class ProxyProtocol(PeerProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            caller = ipaddress.ip_address(transport.get_extra_info("peername")[0])
            super().connection_made(transport)
            if not caller.is_loopback and not any(caller in network for network in allowed):
                transport.abort()

    return ProxyProtocol
