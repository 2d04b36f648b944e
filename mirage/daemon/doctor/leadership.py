"""Who leads, where several daemons may share one database."""

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
    """Who holds the lease, and whether a fail-over is fast enough; a file is one machine's. Changes nothing."""
    try:
        if locate(config.store.url).file is not None:
            return
        found = _leader(config.store.url)
    except MirageError as error:
        follows = "no daemon leads while the database is away"
        yield fail("leadership", str(error), follows, "see that it runs and can be reached from here")
        return
    yield ok("leadership", found)
    terms, bound = LeaseTerms(config.store.lease), 2 * config.loop.interval
    if terms.length + terms.look > bound:
        silence = f"{terms.length + terms.look:.0f} s"
        todo = "lower store.lease"
        yield warn(
            "leadership", f"a fail-over takes up to {silence}", f"{bound} s are two looks at the cluster", todo
        )


def _leader(url: str) -> str:
    database = Database.at(url, _PATIENCE)
    try:
        schema = look_at(database)
        if schema.found != schema.wanted:
            return "the database is not of this version's schema: no daemon of it has led"
        lease = SqlLeases(database).read()
    finally:
        database.close()
    return "nobody leads" if lease.vacant else f"{lease.name} has the lease, in term {lease.term}"
