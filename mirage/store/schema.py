"""Brings a database's schema up to this version's, by the migrations that the package carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from mirage.store.database import Database

_UPGRADE_LOCK = 0x4D697261
"""Any number will do, as long as every Mirage takes the same."""


def upgrade(database: Database) -> None:
    """Upgrade the schema where it is older; nothing happens where it is this version's.

    All steps are one transaction. Raises ``ConfigError`` where it is newer, and ``StoreUnavailable``.
    """
    config = Config()
    config.set_main_option("script_location", "mirage.store:migrations")
    newest = ScriptDirectory.from_config(config).get_current_head()
    if database.read(_revision) != newest:
        database.write(lambda connection: _upgrade(connection, config, database.where))


def _upgrade(connection: Connection, config: Config, where: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    _refuse_newer(_revision(connection), ScriptDirectory.from_config(config), where)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_newer(revision: str | None, known: ScriptDirectory, where: str) -> None:
    names = {script.revision for script in known.walk_revisions()}
    if revision is not None and revision not in names:
        raise ConfigError(
            where,
            f"its schema is {revision}, which this version does not know (it knows up to {max(names)}): "
            "a newer Mirage made it; install that one, or name another database",
        )


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
