"""The account that the daemon runs as, and checks with the rights of that account."""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mirage.api.access.protocol import peer_uid
from mirage.daemon.doctor.finding import Finding, FindingLevel, fail, ok, warn
from mirage.documentreading import parse_json
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.config.model import Config

_CONNECT_S = 2.0
_MOST = 1 << 20
"""Bytes that are read of one finding."""


@dataclass(frozen=True, slots=True)
class DaemonAccount:
    """A user, and how it is known that the daemon runs as that one."""

    uid: int
    name: str
    source: str
    known: bool = True
    """Whether the daemon runs as this user; false: root examines, and no daemon has run yet."""

    @property
    def is_ours(self) -> bool:
        """Whether this process has its rights."""
        return self.uid == os.geteuid()

    def findings(self) -> Iterator[Finding]:
        """Report whose rights are examined, where these are not those of the caller."""
        caller = user_name(os.geteuid())
        if not self.known:
            follows = "the rights of its account in Slurm and to files are not checked"
            yield warn("account", "no daemon has run here yet", follows, "run this again once the daemon has run")
        elif self.is_ours:
            return
        elif os.geteuid() == 0:
            yield ok("account", f"the daemon runs as {self.name} ({self.source})", "its rights are checked")
        else:
            found = f"the daemon runs as {self.name} ({self.source}), not as {caller}"
            follows = f"files, database and queue are checked with the rights of {caller}"
            yield warn("account", found, follows, f"run mirage doctor as root or as {self.name}")

    def look(self, checks: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """The findings of ``checks``, with the rights of this account where this process is root's."""
        if os.geteuid() == 0 and not self.is_ours:
            yield from _as_user(self, checks)
            return
        try:
            yield from checks()
        except OSError as error:
            follows = "the other rights of the daemon's account are not checked"
            yield fail("account", str(error), follows, "run mirage doctor as root or as the daemon's account")


def find_account(config: Config) -> DaemonAccount:
    """Return the user at the daemon's socket; else the owner of its state directory; else the caller."""
    uid = listening(config)
    if uid is not None:
        return DaemonAccount(uid, user_name(uid), "the process at its socket")
    try:
        uid = Path(config.service.state).stat().st_uid
    except OSError:
        uid = os.geteuid()
        return DaemonAccount(uid, user_name(uid), "the caller", known=uid != 0)
    return DaemonAccount(uid, user_name(uid), "the owner of service.state")


def listening(config: Config) -> int | None:
    """The UID of the process that answers at the daemon's socket; ``None``: none does."""
    return answering(config.api.socket) if config.api.enabled else None


def answering(path: str) -> int | None:
    """The UID of the process that accepts connections at a socket; ``None``: none does."""
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(_CONNECT_S)
        try:
            to.connect(path)
            return peer_uid(to)
        except OSError:
            return None


def user_name(uid: int) -> str:
    """User name in the user database, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"UID {uid}"


def _as_user(account: DaemonAccount, checks: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Check in a child process: a root process cannot switch to other rights and back."""
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forks while BLAS has idle threads
        child = os.fork()
    if not child:
        _run_child(account, checks, sending)
    os.close(sending)
    problem: str | None = "the checking process ended early"
    try:
        with os.fdopen(receiving, "rb") as lines:
            while line := lines.readline(_MOST):
                kind, *said = parse_json(line)
                if kind == "finding":
                    yield _finding(*said)
                else:
                    problem = str(said[0]) if said else None
    except (ValueError, TypeError):
        pass  # not whole
    finally:
        os.waitpid(child, 0)
    if problem is not None:
        follows = f"the rights of {account.name} are not checked, or only in part"
        yield fail("account", problem, follows, f"run it as that user: sudo -u {account.name} mirage doctor ...")


def _finding(level: str, check: str, found: str, follows: str, todo: str) -> Finding:
    return Finding(FindingLevel(level), str(check), str(found), str(follows), str(todo))


def _run_child(account: DaemonAccount, checks: Callable[[], Iterator[Finding]], sending: int) -> NoReturn:
    """Never returns: the rest of the program is the parent's."""
    status = 1
    try:
        with os.fdopen(sending, "w", encoding="ascii") as lines:
            for message in _messages(account, checks):
                lines.write(json.dumps(message) + "\n")
                lines.flush()
        status = 0
    except BaseException:  # an interrupt too: nothing of the parent's may run in the child
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _messages(account: DaemonAccount, checks: Callable[[], Iterator[Finding]]) -> Iterator[list[str]]:
    try:
        _become(account)
        for finding in checks():
            yield ["finding", *map(str, asdict(finding).values())]
    except (MirageError, OSError, ImportError) as error:
        yield ["problem", f"{account.name}: {error}"]
    else:
        yield ["end"]


def _become(account: DaemonAccount) -> None:
    try:
        entry = pwd.getpwuid(account.uid)
    except KeyError:
        os.setgroups([])
        os.setgid(account.uid)
    else:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
    os.setuid(account.uid)
