"""The network address and its certificate, servers that get secrets, and files that hold some."""

from __future__ import annotations

import ipaddress
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirage.api.listening import Listening, read_validity
from mirage.client.listener import listening_users
from mirage.daemon.doctor.account import user_name
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.domain.bounds import format_instant
from mirage.domain.errors import ConfigError
from mirage.domain.texts import without_secrets
from mirage.store.location import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
"""Local addresses of processes that listen on all addresses."""


def check_certificate(config: Config) -> Iterator[Finding]:
    """Report how long the certificate is valid, where the network address has one."""
    file = config.api.certificate
    if not (config.api.enabled and config.api.listen and file):
        return
    now = int(time.time())
    try:
        validity = read_validity(file)
    except ConfigError as error:
        yield warn("certificate", str(error), "its validity is not checked", "make it readable for this account")
        return
    problem, todo = validity.problem(now), "renew it, then restart the daemon, which reads it at its start"
    if not validity.covers(now):
        follows = f"clients reject the connection to {config.api.listen}"
        yield fail("certificate", f"{file}: {problem}", follows, todo)
    elif problem:
        follows = f"from then on clients reject the connection to {config.api.listen}"
        yield warn("certificate", f"{file}: {problem}", follows, todo)
    else:
        yield ok("certificate", f"{file}: valid until {format_instant(validity.end)}")


def check_port(config: Config, account: int) -> Iterator[Finding]:
    """Report another user who listens at the daemon's address; ``account``: UID of the daemon's account."""
    if not (config.api.enabled and config.api.listen):
        return
    try:
        wanted = Listening.of(config.api.listen, proxies=tuple(config.api.trusted_proxies) or ("127.0.0.1",))
        others = listening_users(wanted.port, _ANYWHERE.get(wanted.host, wanted.host)) - {account, 0}
    except (ConfigError, OSError) as error:
        yield warn(
            "network address", str(error), "which process listens there is not checked", "correct api.listen"
        )
        return
    if others and wanted.port:
        named = ", ".join(user_name(uid) for uid in sorted(others))
        found = f"{named}, not the daemon's account, listens on {config.api.listen}"
        follows = (
            "the daemon answers only on its socket; that user receives the tokens and sessions that clients send"
        )
        yield fail("network address", found, follows, "end that process; the daemon then listens within seconds")


def check_transports(config: Config) -> Iterator[Finding]:
    """Report servers on other machines that get a token or password without proof of who they are."""
    rest = urlsplit(config.cluster.rest.url)
    if rest.scheme == "http" and not _is_local(rest.hostname or ""):
        found = f"cluster.rest.url: {without_secrets(config.cluster.rest.url)} is not encrypted"
        follows = "a user who can read the network traffic gets Slurm tokens, scripts and environments"
        yield warn(
            "transport", found, follows, "put a TLS proxy in front of slurmrestd, and set its https:// address"
        )
    try:
        location = locate(config.store.url)
    except ConfigError as error:
        yield warn("transport", str(error), "the connection to the database is not checked", "correct store.url")
        return
    query = location.url.query
    server, mode = str(location.url.host or query.get("host", "")), str(query.get("sslmode", ""))
    if location.file is None and not _is_local(server) and mode not in ("verify-full", "verify-ca"):
        found = f"store.url: sslmode={mode or 'prefer'} does not authenticate the database server {server}"
        follows = "another machine with its address gets the password and can pose as the database"
        yield warn("transport", found, follows, "add ?sslmode=verify-full&sslrootcert=FILE to store.url")


def _is_local(host: str) -> bool:
    """Whether this is a directory of Unix sockets, this machine's loopback, or nothing."""
    try:
        return host in ("", "localhost") or host.startswith("/") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_secrets(config: Config) -> Iterator[Finding]:
    """Report files with secrets that every user of this machine can read or change."""
    closed = []
    for key, file, follows in _secrets(config):
        try:
            is_open = _is_open(Path(file))
        except OSError as error:
            todo = "make it readable only for the daemon's account"
            yield warn("secrets", f"{key}: {file}: {error.strerror}", "its readers are not checked", todo)
            continue
        if is_open:
            yield fail(
                "secrets", f"{key}: {file} is accessible to all users", follows, f"chmod o= {file}; replace it"
            )
        else:
            closed.append(key)
    if closed:
        yield ok("secrets", f"inaccessible to other users: {', '.join(closed)}")


def _secrets(config: Config) -> Iterator[tuple[str, str, str]]:
    """The keys that are set, each with its file and what a user can do with its content."""
    api, notifications = config.api, config.notifications
    tls = "a user who reads it can pose as this daemon and intercept tokens"
    if api.listen and api.certificate:
        name = "api.certificate_key" if api.certificate_key else "api.certificate"
        yield name, api.certificate_key or api.certificate, tls
    found = (
        ("api.jwt.key", api.jwt.key, "a user who reads it can act as any user, in Mirage and Slurm"),
        ("cluster.rest.token_file", config.cluster.rest.token_file, "a user who reads it can act as the daemon"),
        (
            "notifications.webhook.url_file",
            notifications.webhook.url_file,
            "a user who reads it can send messages",
        ),
        (
            "notifications.mail.password_file",
            notifications.mail.password_file,
            "a user who reads it can send mail",
        ),
    )
    yield from (each for each in found if each[1])


def _is_open(file: Path) -> bool:
    """Whether a user outside the file's group can read or change it. Raises ``OSError``."""
    real = file.resolve(strict=True)
    if not real.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        return False
    return all(above.stat().st_mode & stat.S_IXOTH for above in real.parents)
