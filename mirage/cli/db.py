"""``mirage db``: the store's schema, its upgrade and its copies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson, ConfigFile

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.config.model import Config
    from mirage.store.schema import Schema

db_app = typer.Typer(help="Look at the daemon's store, copy it, or bring it up to date.", no_args_is_help=True)

NoBackup = Annotated[bool, typer.Option("--no-backup", help="Make no copy first.")]
To = Annotated[str, typer.Option("--to", metavar="FILE", help="Where the copy goes; else beside the store.")]


@db_app.command("status")
def status_command(config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Say where the store is and whether its schema is this version's. Exit status 1 where it is not."""
    from mirage.store.location import locate
    from mirage.store.upgrading import inspect_store

    url = _configured(config).store.url
    schema, shown = inspect_store(url), locate(url).shown
    state = _state(schema)
    if as_json:
        typer.echo(json.dumps({"store": shown, "schema": schema.found, "wanted": schema.wanted, "state": state}))
    else:
        typer.echo(f"{shown}: {_SAID[state].format(found=schema.found, wanted=schema.wanted)}")
    if state in ("older", "newer"):
        raise typer.Exit(1)


@db_app.command("upgrade")
def upgrade_command(config: ConfigFile = "", no_backup: NoBackup = False, as_json: AsJson = False) -> None:
    """Bring the store to this version's schema, after a copy was made. The daemon must not run meanwhile.

    The daemon does the same as it starts; this is for those who want to see it done first.
    """
    from pathlib import Path

    from mirage.daemon.folders import keep_files_private, make_private_folder
    from mirage.daemon.lock import single_instance
    from mirage.store.location import locate
    from mirage.store.upgrading import upgrade_store

    loaded = _configured(config)
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
        kept = f"; as it was: {done.backup}" if done.backup else ""
        typer.echo(f"{shown}: {_from(done.before)} to schema {done.after}{kept}")


@db_app.command("backup")
def backup_command(config: ConfigFile = "", to: To = "", as_json: AsJson = False) -> None:
    """Copy the store as it is now, while the daemon runs or not; SQLite's by its own means, else by pg_dump."""
    from pathlib import Path

    from mirage.domain.errors import ConfigError
    from mirage.store.backup import back_up, backup_place
    from mirage.store.location import locate
    from mirage.store.upgrading import inspect_store

    loaded = _configured(config)
    location, schema = locate(loaded.store.url), inspect_store(loaded.store.url)
    if schema.found is None:
        raise ConfigError(location.shown, "there is nothing to copy: no daemon has kept anything there")
    place = Path(to) if to else backup_place(location, Path(loaded.service.state), schema.found)
    back_up(location, place)
    typer.echo(json.dumps({"store": location.shown, "backup": str(place)}) if as_json else str(place))


_SAID = {
    "empty": "nothing is there yet; the daemon will make it",
    "current": "schema {found}, up to date",
    "older": "schema {found}, this version wants {wanted}; run: mirage db upgrade",
    "newer": "schema {found}, which this version does not know (up to {wanted}); a newer Mirage made it",
}


def _state(schema: Schema) -> str:
    if schema.found is None:
        return "empty"
    if schema.is_newer:
        return "newer"
    return "older" if schema.is_older else "current"


def _from(before: str | None) -> str:
    return f"from schema {before}" if before else "from nothing"


def _configured(config: str) -> Config:
    """The daemon's configuration. Root goes on as the daemon's user: it could not use files of root's."""
    from pathlib import Path

    from mirage.config.loading import load_config

    loaded = load_config(Path(config) if config else None).config
    state = Path(loaded.service.state)
    if state.exists():
        _become_owner(state)
    return loaded


def _become_owner(folder: Path) -> None:
    import os
    import pwd

    about = folder.stat()
    if os.geteuid() != 0 or about.st_uid == 0:
        return
    try:
        os.initgroups(pwd.getpwuid(about.st_uid).pw_name, about.st_gid)
    except KeyError:  # an account of another machine's
        os.setgroups([])
    os.setgid(about.st_gid)
    os.setuid(about.st_uid)
