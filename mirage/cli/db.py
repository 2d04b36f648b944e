"""``mirage db``: schema, upgrade, backup and restore of the database."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import UsageError
from mirage.cli.daemon import configured
from mirage.cli.shared_options import AsJson, ConfigFile

if TYPE_CHECKING:
    from mirage.config.model import Config
    from mirage.store.schema import Schema

db_app = typer.Typer(help="Inspect, back up or upgrade the daemon's database.", no_args_is_help=True)

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

NoBackup = Annotated[bool, typer.Option("--no-backup", help="Skip the backup before the upgrade.")]
KeepTokens = Annotated[
    bool,
    typer.Option("--keep-tokens", help="Keep tokens valid, also those revoked after the backup was made."),
]
PauseAll = Annotated[
    bool, typer.Option("--pause-all", help="Pause every active chain instead of querying accounting.")
]
Since = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="Time of the backup in UTC (default: that of the latest entry)."),
]
To = Annotated[str, typer.Option("--to", metavar="FILE", help="Backup file (default: next to the database).")]


@db_app.command("status")
def status_command(config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Show the location of the database and whether its schema fits this version. If not, exit with 1."""
    from mirage.store.location import locate
    from mirage.store.schema import inspect_store

    loaded = configured(config)
    url = loaded.store.url
    schema, shown = inspect_store(url), locate(url).shown
    state = "missing" if schema.found is None and _has_run(loaded) else _state(schema)
    if as_json:
        typer.echo(json.dumps({"store": shown, "schema": schema.found, "wanted": schema.wanted, "state": state}))
    else:
        typer.echo(f"{shown}: {_SAID[state].format(found=schema.found, wanted=schema.wanted)}")
    if state in ("missing", "older", "newer"):
        raise typer.Exit(1)


@db_app.command("upgrade")
def upgrade_command(config: ConfigFile = "", no_backup: NoBackup = False, as_json: AsJson = False) -> None:
    """Back up the database and upgrade it to this version's schema. The daemon must not run.

    The daemon does the same at its start; use this command to do it beforehand.
    """
    from pathlib import Path

    from mirage.daemon.state_directory import keep_files_private, make_private_folder, single_instance
    from mirage.store.location import locate
    from mirage.store.schema import upgrade_store

    loaded = configured(config)
    state = make_private_folder(Path(loaded.service.state), "service.state")
    keep_files_private()
    with single_instance(state / "daemon.lock"):
        done = upgrade_store(loaded.store.url, state, keep=not no_backup)
    shown = locate(loaded.store.url).shown
    if as_json:
        backup = str(done.backup) if done.backup else None
        typer.echo(json.dumps({"store": shown, "before": done.before, "after": done.after, "backup": backup}))
    elif done.before == done.after:
        typer.echo(f"{shown}: schema {done.after}, nothing to do")
    else:
        kept = f"; backup: {done.backup}" if done.backup else ""
        typer.echo(f"{shown}: upgraded {_from(done.before)} to schema {done.after}{kept}")


@db_app.command("backup")
def backup_command(config: ConfigFile = "", to: To = "", as_json: AsJson = False) -> None:
    """Back up the database, with or without a running daemon, by SQLite's backup API or by pg_dump."""
    from pathlib import Path

    from mirage.domain.errors import ConfigError
    from mirage.store.backup import back_up, backup_place
    from mirage.store.location import locate
    from mirage.store.schema import inspect_store

    loaded = configured(config)
    location, schema = locate(loaded.store.url), inspect_store(loaded.store.url)
    if schema.found is None:
        lost = f"nothing to back up: the database {_SAID['missing']}"
        never = "nothing to back up: no daemon has used this database"
        raise ConfigError(location.shown, lost if _has_run(loaded) else never)
    state = Path(loaded.service.state)
    place = Path(to) if to else backup_place(location, state, schema.found)
    back_up(location, place, state if state.exists() else None)
    typer.echo(json.dumps({"store": location.shown, "backup": str(place)}) if as_json else str(place))


@db_app.command("cluster")
def cluster_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="New ClusterName; without it, print the name.")] = "",
    config: ConfigFile = "",
    as_json: AsJson = False,
) -> None:
    """Print the name of the database's cluster, or change it after the cluster was renamed.

    The daemon stores the ClusterName of slurm.conf when it first reads it, and never becomes leader on another
    cluster. Stop every daemon on this database before you change the name.
    """
    from pathlib import Path

    from mirage.daemon.state_directory import keep_files_private, make_private_folder, single_instance
    from mirage.domain.errors import ConfigError
    from mirage.store.about import change_cluster_name, read_cluster_name
    from mirage.store.location import locate
    from mirage.store.schema import inspect_store, upgrade_store

    loaded = configured(config)
    url, shown = loaded.store.url, locate(loaded.store.url).shown
    if name and not _CLUSTER_NAME.fullmatch(name):
        problem = f"invalid ClusterName {name!r}; expected at most 64 letters, digits, '_', '-' and '.'"
        raise UsageError("NAME", problem)
    if name:
        if inspect_store(url).found is None:
            raise ConfigError(shown, "the database is empty; see mirage db status")
        state = make_private_folder(Path(loaded.service.state), "service.state")
        keep_files_private()
        with single_instance(state / "daemon.lock"):
            upgrade_store(url, state)
            change_cluster_name(url, name)
    known = read_cluster_name(url)
    if as_json:
        typer.echo(json.dumps({"store": shown, "cluster": known or None}))
    else:
        typer.echo(f"{shown}: {f'cluster {known}' if known else 'no cluster name is stored yet'}")


@db_app.command("restored")
def restored_command(
    config: ConfigFile = "",
    keep_tokens: KeepTokens = False,
    pause_all: PauseAll = False,
    since: Since = "",
    as_json: AsJson = False,
) -> None:
    """Mark the database as restored from a backup, before the daemon's next start. The daemon must not run.

    Mirage recognises backups of mirage db backup and pg_dump without this command. Use it for its options.
    Use it also after restoring a file copied by another tool, a physical backup of PostgreSQL, or a snapshot of
    PostgreSQL or of the machine.

    At its next start the daemon compares each chain with Slurm's queue and accounting before it submits a link.
    All tokens are revoked, because those revoked after the backup would be valid again.
    """
    from pathlib import Path

    from mirage.cli.arguments import parse_instant
    from mirage.daemon.state_directory import keep_files_private, make_private_folder, single_instance
    from mirage.domain.bounds import format_instant
    from mirage.domain.errors import ConfigError
    from mirage.store.location import locate
    from mirage.store.restoration import declare_restored
    from mirage.store.schema import inspect_store, upgrade_store

    loaded = configured(config)
    ends = parse_instant(since, "--since") if since else None
    shown = locate(loaded.store.url).shown
    if inspect_store(loaded.store.url).found is None:
        raise ConfigError(shown, "the database is empty; restore the backup first")
    state = make_private_folder(Path(loaded.service.state), "service.state")
    keep_files_private()
    with single_instance(state / "daemon.lock"):
        upgrade_store(loaded.store.url, state)
        note = declare_restored(
            loaded.store.url, keep_tokens=keep_tokens, asks_accounting=not pause_all, since=ends
        )
    last, owners = format_instant(note.restoration.since), sorted(set(note.revoked))
    if as_json:
        document = {"store": shown, "since": last, "tokens_revoked": len(note.revoked), "owners": owners}
        typer.echo(json.dumps(document))
        return
    tokens = f"tokens revoked: {len(note.revoked)}" + (f" ({', '.join(owners)})" if owners else "")
    typer.echo(f"{shown}: marked as restored from a backup that ends at {last}; {tokens}")


_SAID = {
    "missing": "is missing or empty, although a daemon has run here; stop the daemon and restore a backup",
    "empty": "does not exist yet; the daemon will create it",
    "current": "schema {found}, up to date",
    "older": "schema {found}, this version requires {wanted}; run: mirage db upgrade",
    "newer": "schema {found} of a newer Mirage; this version supports schemas up to {wanted}",
}


def _state(schema: Schema) -> str:
    if schema.found is None:
        return "empty"
    if schema.is_newer:
        return "newer"
    return "older" if schema.is_older else "current"


def _has_run(loaded: Config) -> bool:
    """Return whether the state directory shows that a daemon has run."""
    from pathlib import Path

    return any(Path(loaded.service.state, name).exists() for name in ("identity", "heartbeat"))


def _from(before: str | None) -> str:
    return f"from schema {before}" if before else "an empty database"
