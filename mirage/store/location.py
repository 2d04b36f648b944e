"""Where a database lies: its URL checked, and the place for a SQLite file made ready."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from mirage.domain.errors import ConfigError, StoreUnavailable

_EXAMPLES = "sqlite:////var/lib/mirage/mirage.db or postgresql://mirage@localhost/mirage"
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "panfs", "orangefs"}
_NETWORK |= {"pvfs2", "wekafs", "glusterfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"}
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Location:
    """One database."""

    url: URL
    file: Path | None
    """SQLite's file, absolute; ``None``: a PostgreSQL server."""

    @property
    def shown(self) -> str:
        """For messages: the file, or the address without its password."""
        return str(self.file) if self.file else self.url.render_as_string(hide_password=True)


def locate(text: str) -> Location:
    """Where ``text``, a database URL, points to. Raises ``ConfigError``."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError("store", f"this is not a database URL, such as {_EXAMPLES}") from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return Location(url.set(drivername="postgresql+psycopg"), None)
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError("store", f"{url.drivername} is not supported; use {_EXAMPLES}")
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigError(
            "store", "a SQLite database is a plain file, such as sqlite:////var/lib/mirage/mirage.db"
        )
    return Location(url, Path(url.database).absolute())


def make_room(file: Path) -> None:
    """Create the file and its directory where they are missing, for this user's eyes only: scripts and
    environments lie in there.

    Raises ``ConfigError`` on a network file system, whose locks SQLite cannot rely on, and ``StoreUnavailable``.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = file_system(file.parent.resolve(), _mounts())
        if kind in _NETWORK:
            raise ConfigError(
                str(file),
                f"a database cannot be kept on a network file system ({kind}); name a file on a local disk "
                f"(such as /var/tmp/{file.name}), or use PostgreSQL",
            )
        if not file.exists():
            file.touch(mode=0o600)
    except OSError as error:
        text = (
            f"{file}: {error.strerror} ({error.filename}); let the daemon's user write there, or name another file"
        )
        raise StoreUnavailable(text) from error


def file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that holds ``directory``, from the text of mountinfo; empty: not known."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = _unescaped(before.split()[4])
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def _mounts() -> str:
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""


def _unescaped(text: str) -> str:
    """Blanks and backslashes in mount points are written in octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text
