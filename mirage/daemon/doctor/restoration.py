"""Whether the database is a restored backup that was not compared with Slurm yet, or of another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.bootstrap.clusteridentity import other_cluster
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.domain.errors import MirageError
from mirage.domain.instants import spell_instant
from mirage.store.clustername import read_cluster_name
from mirage.store.restoration import read_restoration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding


def check_restoration(config: Config) -> Iterator[Finding]:
    """Effects of a restored database on chains and tokens; nothing for any other. Changes nothing."""
    try:
        found = read_restoration(config.store.url)
    except MirageError as error:
        yield warn("restored", str(error), "this could not be checked", "check the database")
        return
    if found is None:
        return
    ends = f"the database was restored from a backup that ends at {spell_instant(found.since)}"
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
