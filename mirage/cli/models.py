"""``mirage models``: which trained models are kept, and which of them is in use."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import AsJson, ConfigFile
from mirage.cli.daemonaccount import become_owner, become_owner_of_files, load
from mirage.cli.printing import table_console
from mirage.cli.shadows import objection, shadow_command

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from rich.table import Table

    from mirage.config.loading import Loaded
    from mirage.predictors.artifacts.shelf import Version

models_app = typer.Typer(help="Trained models: list them, put one in use, go back to the one before.")

Models = Annotated[
    str,
    typer.Option("--models", metavar="DIR", help="Folder of the models; by default in the daemon's state folder."),
]
Force = Annotated[bool, typer.Option("--force", help="Also where it did worse in shadow.")]


models_app.command("shadow")(shadow_command)


@models_app.command("list")
def list_command(*, models: Models = "", config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Every version that is kept, and what it was trained on."""
    from mirage.predictors.artifacts.shelf import Shelf

    folder = models_folder(models, load(config) if config else None)
    shelf = Shelf(folder)
    watched = {path.name for path in shelf.watched().values()}
    checked = [(version, shelf.damage(version)) for version in shelf.versions()]
    if as_json:
        listed = [
            _document(version) | {"shadow": version.version in watched, "damage": found}
            for version, found in checked
        ]
        typer.echo(json.dumps({"models": listed}, indent=1))
    elif checked:
        table_console().print(_table(checked, watched))
    else:
        typer.echo(f"no models in {folder}; mirage train makes one, mirage models promote keeps it")


@models_app.command("promote")
def promote_command(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Folder that mirage train has made.")],
    *,
    models: Models = "",
    config: ConfigFile = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Keep a trained model and put it in use: daemons that name its folder take it when they start.

    Rejected (exit 1) where it was trained on another cluster, and (exit 4) where the daemon has measured in shadow
    that it costs more than the predictor in charge.
    """
    from mirage.predictors.artifacts.home import check_cluster
    from mirage.predictors.artifacts.shelf import Shelf, read_package
    from mirage.predictors.artifacts.trial import try_files
    from mirage.store.clustername import read_cluster_name

    # The artifact and the configuration may be such as only root reads.
    package, loaded = read_package(artifact), load(config) if config or not force else None
    folder = models_folder(models, loaded if config else None)
    _become_owner(folder, loaded)
    if loaded:
        check_cluster(package.manifest.cluster, read_cluster_name(loaded.config.store.url))
    if not force and loaded and (problem := objection(package.manifest, loaded.config)):
        typer.echo(f"mirage: {artifact}: {problem}; --force puts it in use all the same", err=True)
        raise typer.Exit(4)
    try_files(package.files, package.manifest, artifact)
    _tell(Shelf(folder).put_in_use(package), folder, as_json=as_json)


@models_app.command("rollback")
def rollback_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The predictor, such as xgboost.")],
    *,
    models: Models = "",
    config: ConfigFile = "",
    as_json: AsJson = False,
) -> None:
    """Put the version in use again that was before."""
    from mirage.predictors.artifacts.shelf import Shelf

    loaded = load(config) if config else None
    folder = models_folder(models, loaded)
    _become_owner(folder, loaded)
    _tell(Shelf(folder).rollback(name), folder, as_json=as_json)


def models_folder(models: str, loaded: Loaded | None = None) -> Path:
    """The folder so named; by default that in the daemon's state folder, as the configuration names it."""
    from mirage.bootstrap.predictors import MODELS
    from mirage.config.places import default_places

    if models:
        return Path(models)
    if loaded is not None:
        return Path(loaded.config.service.state) / MODELS
    return default_places(os.environ, os.getuid()).state / MODELS


def _become_owner(folder: Path, loaded: Loaded | None) -> None:
    if loaded is not None:
        become_owner_of_files(loaded)
    become_owner(folder)


def _tell(version: Version, models: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_document(version), indent=1))
        return
    typer.echo(f"{version.name} {version.version} is in use: {version.name}:{models / version.name}")


def _document(version: Version) -> dict[str, Any]:
    told = {"name": version.name, "version": version.version, "current": version.current}
    return told | {"manifest": asdict(version.manifest)}


def _table(checked: Sequence[tuple[Version, str]], watched: Container[str]) -> Table:
    """``checked``: each version, and why it cannot be used; ``watched``: versions in shadow."""
    from rich.table import Table
    from rich.text import Text

    from mirage.domain.instants import spell_instant
    from mirage.domain.texts import printable

    table = Table("model", "version", "in use", "cluster", "trained on", "hand-overs", "|x| in validation, h")
    for version, damaged in checked:
        manifest = version.manifest
        span = f"{spell_instant(manifest.training.first)[:10]} to {spell_instant(manifest.training.known)[:10]}"
        gap = manifest.metrics.get("absolute_x")
        table.add_row(
            version.name,
            version.version,
            ("yes" if version.current else "in shadow" if version.version in watched else "")
            + (" (damaged)" if damaged else ""),
            Text(printable(manifest.cluster.name)),
            span,
            str(manifest.training.handovers),
            f"{gap:.2f}" if gap is not None else "",
        )
    return table
