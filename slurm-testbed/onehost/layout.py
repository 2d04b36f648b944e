"""Paths below the state directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onehost.errors import TestbedError

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_DIRECTORY = 60
"""Steps listen on DIR/spool/NODE/NODE_JOB.STEP, and Unix sockets allow 107 characters."""

FOLDERS = ("bin", "etc", "log", "run", "munge", "mysql", "ctld", "spool", "jwt", "dev", "rest")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one testbed."""

    directory: Path

    def __getattr__(self, folder: str) -> Path:
        """``layout.log`` and the like, for every name in ``FOLDERS``."""
        if folder not in FOLDERS:
            raise AttributeError(folder)
        return self.directory / folder

    @property
    def conf(self) -> Path:
        """Path of ``slurm.conf``."""
        return self.directory / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Socket of the testbed's munged; the machine's munged is not used."""
        return self.directory / "munge" / "munge.socket"

    @property
    def jwt_key(self) -> Path:
        """The HS256 key of auth/jwt."""
        return self.directory / "jwt" / "jwt_hs256.key"

    @property
    def mysql_socket(self) -> Path:
        """Socket of MariaDB, for its administrator."""
        return self.directory / "mysql" / "s.sock"

    @property
    def clock(self) -> Path:
        """``{"t0", "rate"}``: Slurm's time = t0 + (real time - t0) * rate."""
        return self.directory / "clock.json"

    @property
    def state(self) -> Path:
        """Description of the running testbed, for clients."""
        return self.directory / "testbed.json"

    def check(self) -> None:
        """Raise ``TestbedError`` for directories in which Slurm would fail later with a less clear message."""
        if len(str(self.directory)) > LONGEST_DIRECTORY:
            raise TestbedError(
                f"--dir {self.directory}: longer than {LONGEST_DIRECTORY} characters (Unix sockets)"
            )
        if os.statvfs(self.directory).f_flag & os.ST_NOEXEC:
            raise TestbedError(f"--dir {self.directory}: mounted noexec, but slurmd runs job scripts from there")

    def make(self) -> None:
        """Create the directories; the user who started the testbed owns them until their daemon does."""
        for folder in FOLDERS:
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
            (self.directory / folder).chmod(0o755)
        self.directory.chmod(0o755)
        for shared in ("log", "run"):
            (self.directory / shared).chmod(0o1777)
