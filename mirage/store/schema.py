"""Upgrades a database's schema by the migrations of this package, with a backup of the database."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from mirage.domain.errors import ConfigError
from mirage.store.backup import NoBackup, back_up, backup_place
from mirage.store.database import Database
from mirage.store.location import locate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection

    from mirage.store.location import Location

_UPGRADE_LOCK = 0x4D697261
"""Any number will do, as long as every Mirage takes the same."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database has, next to what this version wants."""

    found: str | None
    """``None``: nothing is in there yet."""
    steps: tuple[str, ...]
    """Schema versions known to this Mirage, oldest first; the last one is required."""

    @property
    def wanted(self) -> str:
        """This version's own."""
        return self.steps[-1]

    @property
    def is_newer(self) -> bool:
        """Whether a later Mirage made it."""
        return self.found is not None and self.found not in self.steps

    @property
    def is_older(self) -> bool:
        """Whether an earlier Mirage made it."""
        return self.found in self.steps[:-1]

    def check(self, where: str) -> None:
        """Raises ``ConfigError`` where it is newer."""
        if self.is_newer:
            raise ConfigError(
                where,
                f"its schema is {self.found}, which this version does not know (it knows up to {self.wanted}): "
                "a newer Mirage made it; install that one, or name another database",
            )


def no_schema() -> Schema:
    """That of a database that is not there yet."""
    return Schema(None, _steps())


def look_at(database: Database) -> Schema:
    """The schema of ``database``, which is left as it is. Raises ``StoreUnavailable``."""
    return database.read(_schema)


def upgrade(database: Database, keep: Callable[[str], None]) -> str | None:
    """Upgrade the schema where it is older; nothing happens where it is this version's.

    ``keep`` is called with the old version number before any change, while no other process can write. All steps
    are one transaction, and an error of ``keep`` aborts them. Returns that number, ``None`` without an older
    schema. Raises ``ConfigError`` where the schema is newer, and ``StoreUnavailable``.
    """
    schema = look_at(database)
    if schema.found == schema.wanted:
        return None
    return database.write(lambda connection: _upgrade(connection, keep, database.where))


def _upgrade(connection: Connection, keep: Callable[[str], None], where: str) -> str | None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    schema = _schema(connection)
    schema.check(where)
    if schema.is_older:
        keep(str(schema.found))
    _run_steps(connection)
    return schema.found if schema.is_older else None


def _run_steps(connection: Connection) -> None:
    """As ``alembic.command.upgrade``, which would load every step again."""
    scripts, config = _scripts(), _config()
    config.attributes["connection"] = connection
    with EnvironmentContext(config, scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)):
        scripts.run_env()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "mirage.store:migrations")
    return config


@cache
def _scripts() -> ScriptDirectory:
    """Every step, loaded once: that takes longer than the steps themselves."""
    return ScriptDirectory.from_config(_config())


def _schema(connection: Connection) -> Schema:
    return Schema(MigrationContext.configure(connection).get_current_revision(), _steps())


@cache
def _steps() -> tuple[str, ...]:
    return tuple(script.revision for script in _scripts().walk_revisions())[::-1]


_LOG = logging.getLogger(__name__)
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What was done."""

    before: str | None
    """The schema that was there; ``None``: nothing was."""
    after: str
    backup: Path | None = None
    """Backup of the old database; ``None``: not needed or not requested."""


def inspect_store(url: str) -> Schema:
    """The schema of the database at ``url``, which is neither made nor changed.

    Raises ``ConfigError``, ``MissingExtra`` and ``StoreUnavailable``.
    """
    location = locate(url)
    if location.is_missing():
        return no_schema()
    database = Database.at(url, _PATIENCE)
    try:
        return look_at(database)
    finally:
        database.close()


def upgrade_store(url: str, backups: Path | None, *, keep: bool = True) -> Upgrade:
    """Bring the database at ``url`` to this version's schema; with ``keep`` a copy is made first.

    Raises ``ConfigError``, ``MissingExtra`` and ``StoreUnavailable``: all is then as it was.
    """
    database = Database.at(url, _PATIENCE)
    try:
        before = look_at(database)
        copy = bring_up_to_date(database, locate(url), backups, keep=keep)
        return Upgrade(before.found, before.wanted, copy)
    finally:
        database.close()


def bring_up_to_date(
    database: Database, location: Location, backups: Path | None, *, keep: bool = True
) -> Path | None:
    """Upgrade where the schema is older; returns the copy that was made first. Raises as ``upgrade_store``."""
    made: list[Path] = []

    def copy(revision: str) -> None:
        if keep:
            made[:] = [_copied(location, backups, revision)]

    try:
        before = upgrade(database, copy)
    except BaseException:
        # The database is unchanged: repeated starts must not fill the disk with copies.
        for useless in made:
            useless.unlink(missing_ok=True)
        raise
    if before is not None:
        kept = f"; as it was: {made[0]}" if made else ""
        _LOG.warning("%s: upgraded from schema %s%s", location.shown, before, kept)
    return made[0] if made else None


def _copied(location: Location, backups: Path | None, revision: str) -> Path:
    if location.file is None and backups is None:
        raise NoBackup(f"{location.shown}: its schema is {revision}, which is older; run: mirage db upgrade")
    place = backup_place(location, backups, revision)
    back_up(location, place, backups)
    return place
