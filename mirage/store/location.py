"""Where a database lies: its URL checked, and the place for a SQLite file made ready."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.masking import without_secrets
from mirage.store.mounts import network_file_system

_EXAMPLES = "sqlite:////var/lib/mirage/mirage.db or postgresql://mirage@localhost/mirage"


@dataclass(frozen=True, slots=True)
class Location:
    """One database."""

    url: URL
    file: Path | None
    """SQLite's file, absolute; ``None``: a PostgreSQL server."""

    @property
    def shown(self) -> str:
        """For messages: the file, or the address without its password."""
        return str(self.file) if self.file else without_secrets(self.url.render_as_string(hide_password=True))


def locate(text: str) -> Location:
    """Where ``text``, a database URL, points to. Raises ``ConfigError``."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError("store", f"this is not a database URL, such as {_EXAMPLES}") from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return Location(_with_password_in_place(url).set(drivername="postgresql+psycopg"), None)
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError("store", f"{url.drivername} is not supported; use {_EXAMPLES}")
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigError(
            "store", "a SQLite database is a plain file, such as sqlite:////var/lib/mirage/mirage.db"
        )
    return Location(url, Path(url.database).absolute())


def _with_password_in_place(url: URL) -> URL:
    """A password given as a parameter is moved to where passwords are hidden and kept from command lines."""
    given = url.query.get("password")
    moved = url.difference_update_query(["password"])
    return moved.set(password=given) if isinstance(given, str) else moved


def make_room(file: Path) -> None:
    """Create the file and its directory where they are missing, for this user's eyes only: scripts and
    environments lie in there.

    Raises ``ConfigError`` on a network file system, whose locks SQLite cannot rely on, and ``StoreUnavailable``.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kind := network_file_system(file.parent):
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
