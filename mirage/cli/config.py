"""``mirage config``: show, check and document the configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson, ConfigFile

if TYPE_CHECKING:
    from mirage.config.loading import Loaded

config_app = typer.Typer(help="Show, check or document the daemon's configuration.", no_args_is_help=True)


@config_app.command("show")
def show_command(config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Show the value of every key and its origin. Passwords are hidden."""
    from pathlib import Path

    from mirage.config.loading import load_config

    rows = _rows(load_config(Path(config) if config else None))
    if as_json:
        typer.echo(json.dumps({key: {"value": value, "from": origin} for key, value, origin in rows}, indent=1))
        return
    key_width = max(len(key) for key, _, _ in rows)
    texts = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in rows]
    value_width = min(40, max(len(text) for _, text, _ in texts))
    for key, text, origin in texts:
        typer.echo(f"{key:<{key_width}} = {text:<{value_width}}  # {origin}")


@config_app.command("check")
def check_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Configuration file.")], as_json: AsJson = False
) -> None:
    """Check a configuration file as the daemon reads it, with conf.d next to it and the environment."""
    from pathlib import Path

    from mirage.config.loading import load_config
    from mirage.daemon.startcheck import check_start
    from mirage.domain.errors import MirageError

    try:
        loaded = load_config(Path(file))
        with loaded.explaining():
            check_start(loaded.config)
    except MirageError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"file": file, "ok": False, "problem": str(error)}))
        raise typer.Exit(1) from None
    typer.echo(json.dumps({"file": file, "ok": True}) if as_json else f"{file}: ok")


@config_app.command("reference")
def reference_command() -> None:
    """Print a configuration file with every key commented out, its default and its meaning."""
    from mirage.config.reference import reference

    typer.echo(reference(), nl=False)


def _rows(loaded: Loaded) -> list[tuple[str, object, str]]:
    from mirage.config.display import masked, settings

    return [(".".join(key), masked(value), loaded.origin(key)) for key, value in settings(loaded.config)]
