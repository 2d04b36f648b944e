"""The certificate of the network address, and files that hold secrets."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.api.certificate import read_validity
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.domain.errors import ConfigError
from mirage.domain.instants import spell_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding


def check_certificate(config: Config) -> Iterator[Finding]:
    """Report how long the certificate is valid, where the network address has one."""
    file = config.api.certificate
    if not (config.api.enabled and config.api.listen and file):
        return
    now = int(time.time())
    try:
        validity = read_validity(file)
    except ConfigError as error:
        yield warn("certificate", str(error), "how long it is valid is not looked at", "see that it can be read")
        return
    problem, todo = validity.problem(now), "renew it, and restart the daemon: it reads the file at its start"
    if not validity.covers(now):
        follows = f"browsers and programs reject the connection to {config.api.listen}"
        yield fail("certificate", f"{file}: {problem}", follows, todo)
    elif problem:
        follows = f"from then on browsers and programs reject the connection to {config.api.listen}"
        yield warn("certificate", f"{file}: {problem}", follows, todo)
    else:
        yield ok("certificate", f"{file}: valid until {spell_instant(validity.end)}")


def check_secrets(config: Config) -> Iterator[Finding]:
    """Report files with secrets that every user of this machine can read or change."""
    closed = []
    for key, file, follows in _secrets(config):
        try:
            is_open = _is_open(Path(file))
        except OSError as error:
            todo = "let the daemon's account read it, and no other user"
            yield warn("secrets", f"{key}: {file}: {error.strerror}", "who can read it is not looked at", todo)
            continue
        if is_open:
            yield fail("secrets", f"{key}: {file} is open to all users", follows, f"chmod o= {file}; replace it")
        else:
            closed.append(key)
    if closed:
        yield ok("secrets", f"closed to other users: {', '.join(closed)}")


def _secrets(config: Config) -> Iterator[tuple[str, str, str]]:
    """The keys that are set, each with its file and what a user can do with its content."""
    api, notifications = config.api, config.notifications
    tls = "a user who reads it can pose as this daemon, and read tokens on their way"
    if api.listen and api.certificate:
        name = "api.certificate_key" if api.certificate_key else "api.certificate"
        yield name, api.certificate_key or api.certificate, tls
    found = (
        ("api.jwt.key", api.jwt.key, "a user who reads it can act as any user, here and at Slurm"),
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
