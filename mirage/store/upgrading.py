"""Upgrades the schema of an earlier Mirage, with a backup of the database."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.store.backup import NoBackup, back_up, backup_place
from mirage.store.database import Database
from mirage.store.location import locate
from mirage.store.schema import look_at, no_schema, upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.store.location import Location
    from mirage.store.schema import Schema

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
    if location.file is not None and not location.file.exists():
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
