"""The users of a testbed, and the users that its daemons run as."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

USERS = ("alice", "bob", "carol")
OPERATOR = "mirage"
"""An ordinary account of the machine; Slurm's accounting makes it an Operator."""


class Identity(TypedDict, total=False):
    """Arguments of ``subprocess`` that change the user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Person:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    home: Path

    def identity(self) -> Identity:
        """Arguments of ``subprocess`` to run as this user; empty for the current user."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": os.getgrouplist(self.name, self.gid)}


def person(name: str) -> Person:
    """Look a user up. Raises ``KeyError`` for an unknown user."""
    entry = pwd.getpwnam(name)
    return Person(entry.pw_name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir))


def myself() -> Person:
    """The user who runs the testbed."""
    return person(pwd.getpwuid(os.geteuid()).pw_name)


def ensure_users(names: Sequence[str] = (*USERS, OPERATOR)) -> None:
    """Create users that the machine does not have; by default those of the testbed.

    One testbed at a time: ``useradd`` fails while another one runs. Raises ``CalledProcessError``.
    """
    missing = [name for name in names if not _exists(name)]
    if not missing:
        return
    with Path("/run/mirage-testbed-users.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in filter(lambda name: not _exists(name), missing):
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)


def _exists(name: str) -> bool:
    try:
        person(name)
    except KeyError:
        return False
    return True
