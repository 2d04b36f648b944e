"""The database: who leads, a restored backup, another cluster's database. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.bootstrap.identities import other_cluster
from mirage.control.leader_election import LeaseTerms
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.domain.bounds import format_instant
from mirage.domain.errors import MirageError
from mirage.domain.lease import VACANT
from mirage.store.about import read_cluster_name
from mirage.store.database import Database
from mirage.store.leases import FileLeases, SqlLeases
from mirage.store.location import locate
from mirage.store.restoration import read_restoration
from mirage.store.schema import look_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding
    from mirage.domain.lease import Lease


def check_restoration(config: Config) -> Iterator[Finding]:
    """Effects of a restored database on chains and tokens; nothing for any other. Changes nothing."""
    try:
        found = read_restoration(config.store.url)
    except MirageError as error:
        yield warn("restored", str(error), "this could not be checked", "check the database")
        return
    if found is None:
        return
    ends = f"the database was restored from a backup that ends at {format_instant(found.since)}"
    follows = (
        "its tokens are revoked; no chain gets successors until the daemon has compared it with accounting, and "
        "chains with possibly unknown links are paused"
    )
    todo = "see event=database_restored in the daemon's log, and docs/deploy.md, Restore"
    yield warn("restored", ends, follows, todo)


def check_cluster_name(config: Config, here: str) -> Iterator[Finding]:
    """Whether the database belongs to the cluster ``here``; empty: its name is not known."""
    try:
        stored = read_cluster_name(config.store.url)
    except MirageError as error:
        yield warn("database", str(error), "its cluster is not checked", "check the database")
        return
    if not stored or not here:
        return
    if stored.casefold() == here.casefold():
        yield ok("database", f"it belongs to cluster {stored}")
        return
    problem, _, todo = other_cluster(stored, here).partition("; ")
    yield fail("database", problem, "this daemon neither leads nor submits", todo)


_PATIENCE = 5.0


def check_leadership(config: Config) -> Iterator[Finding]:
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
    location = locate(url)
    if location.directory is not None:
        return _said(VACANT if location.is_missing() else FileLeases(location.directory).read())
    database = Database.at(url, _PATIENCE)
    try:
        schema = look_at(database)
        if schema.found != schema.wanted:
            return "the database has another version's schema: no daemon of this version has led"
        lease = SqlLeases(database).read()
    finally:
        database.close()
    return _said(lease)


def _said(lease: Lease) -> str:
    return "no daemon leads" if lease.vacant else f"{lease.name} has the lease, in term {lease.term}"
