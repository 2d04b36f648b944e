"""Leadership among daemons that share one database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.control.election import LeaseTerms
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.domain.errors import MirageError
from mirage.store.database import Database
from mirage.store.leases import SqlLeases
from mirage.store.location import locate
from mirage.store.schema import look_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

_PATIENCE = 5.0


def look_at_leadership(config: Config) -> Iterator[Finding]:
    """Check which daemon holds the lease and how long a failover takes; not for SQLite. Changes nothing."""
    try:
        if locate(config.store.url).file is not None:
            return
        found = _leader(config.store.url)
    except MirageError as error:
        follows = "no daemon leads while the database is unreachable"
        yield fail("leadership", str(error), follows, "check that it runs and can be reached from here")
        return
    yield ok("leadership", found)
    terms, bound = LeaseTerms(config.store.lease), 2 * config.loop.interval
    if terms.length + terms.look > bound:
        silence = f"{terms.length + terms.look:.0f} s"
        todo = "lower store.lease"
        yield warn(
            "leadership", f"a failover takes up to {silence}", f"that is more than two polls ({bound} s)", todo
        )


def _leader(url: str) -> str:
    database = Database.at(url, _PATIENCE)
    try:
        schema = look_at(database)
        if schema.found != schema.wanted:
            return "the database has another version's schema: no daemon of this version has led"
        lease = SqlLeases(database).read()
    finally:
        database.close()
    return "no daemon leads" if lease.vacant else f"{lease.name} has the lease, in term {lease.term}"
