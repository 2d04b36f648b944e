"""``mirage models``: the model registry: list, compare, promote and roll back trained models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.modelfiles import kept_version, list_files, models_folder, promote_files, rollback_files
from mirage.cli.printing import show, show_error, show_table
from mirage.cli.shadows import FilesOf, objection, shadow_command
from mirage.cli.usage import UsageError
from mirage.client.client import predictor_path
from mirage.client.predictors import ModelAnswer, ModelVersion, Predictors
from mirage.client.reading import read, read_all
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from mirage.config.loading import Loaded
    from mirage.predictors.artifacts.manifest import Manifest

models_app = typer.Typer(help="List, compare, promote and roll back trained models.")

Models = Annotated[
    str,
    typer.Option("--models", metavar="DIR", help="Directory of the model registry; read without the daemon."),
]
Force = Annotated[bool, typer.Option("--force", help="Promote the model even if it was worse in shadow.")]


models_app.command("shadow")(shadow_command)


@models_app.command("list")
def list_command(
    *, socket: Socket = "", models: Models = "", config: FilesOf = "", as_json: AsJson = False
) -> None:
    """List the versions of trained models in the daemon's registry, with their training data.

    --config and --models read the registry without the daemon.
    """
    if _offline(socket, models, config):
        found = list_files(models, config)
    else:
        with exit_codes(_without_daemon):
            document = connect(socket).get("/predictors")
            read(Predictors, document)
        found = document.get("models", [])
    if as_json:
        typer.echo(json.dumps({"models": found}, indent=1))
    elif found:
        show_table(_table(read_all(ModelVersion, found)))
    else:
        show("no models; train one with mirage train, register it with mirage models promote")


@models_app.command("promote")
def promote_command(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="DIR|NAME:VERSION", help="Directory of a model from mirage train, or a registered version."
        ),
    ],
    *,
    socket: Socket = "",
    models: Models = "",
    config: FilesOf = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Promote a trained model.

    A registered version, as mirage models list shows it: the daemon uses it from its next cycle on. Only
    administrators may do this.

    A directory: the command copies it to the daemon's registry, by default or as --config or --models say. The
    daemon uses it after its next start.

    Rejected with exit code 4 if the model costs more in shadow than the active predictor, unless --force is given.
    Also rejected (4 by the daemon, 1 for a directory) if it was trained on another cluster.
    """
    name, version = kept_version(artifact)
    offline = _offline(socket, models, config)
    if name and not offline:
        wish = {"version": version, "force": force}
        _tell_answer(_post(socket, f"{predictor_path(name)}/promote", wish), as_json=as_json)
        return
    if socket:
        problem = "not valid with a directory; give --config FILE, or promote a registered version"
        raise UsageError("--socket", problem)

    def refuse(manifest: Manifest, loaded: Loaded) -> None:
        if problem := objection(manifest, loaded.config):
            show_error(ConfigError(artifact, f"{problem}; to promote it anyway, give --force"))
            raise typer.Exit(4)

    _tell_files(*promote_files(artifact, models, config, None if force else refuse), models, as_json=as_json)


@models_app.command("rollback")
def rollback_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Predictor, such as xgboost.")],
    *,
    socket: Socket = "",
    models: Models = "",
    config: FilesOf = "",
    as_json: AsJson = False,
) -> None:
    """Return to the version that was active before; only for administrators.

    The daemon uses it from its next cycle on. --config and --models change the registry without the daemon.
    """
    if _offline(socket, models, config):
        _tell_files(*rollback_files(name, models, config), models, as_json=as_json)
    else:
        _tell_answer(_post(socket, f"{predictor_path(name)}/rollback"), as_json=as_json)


def _offline(socket: str, models: str, config: str) -> bool:
    """Return whether to read files instead of asking a daemon. Raises ``UsageError`` if both are given."""
    if socket and (models or config):
        raise UsageError("--socket", "not valid with --config or --models, which read files without a daemon")
    return bool(models or config)


def _without_daemon() -> str:
    return f"without a daemon, give --config FILE or --models {models_folder('')}"


def _post(socket: str, path: str, document: object = None) -> dict[str, Any]:
    with exit_codes(_without_daemon):
        answer: dict[str, Any] = connect(socket).post(path, document)
        read(ModelAnswer, answer)
    return answer


def _tell_answer(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answer["model"], indent=1))
    else:
        show(answer["sentence"])


def _tell_files(model: dict[str, Any], folder: Path, models: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(model, indent=1))
        return
    name, version = model["name"], model["version"]
    show(f"{name} {version} is promoted: {name}:{folder / name}")
    if not models:
        text = "The daemon uses it after its next start. For a running daemon: mirage models promote"
        show(f"{text} {name}:{version}", err=True)


def _table(versions: Sequence[ModelVersion]) -> Table:
    from rich.table import Table

    table = Table("model", "version", "role", "cluster", "trained on", "handovers", "mean abs. offset, h")
    for each in versions:
        gap = each.metrics.get("absolute_x")
        use = "active" if each.current else "shadow" if each.shadow else ""
        table.add_row(
            *map(_cell, (each.name, each.version, use + (" (damaged)" if each.damage else ""), each.cluster)),
            f"{each.first:%Y-%m-%d} to {each.last:%Y-%m-%d}" if each.first and each.last else "",
            str(each.handovers),
            f"{gap:.2f}" if gap is not None else "",
        )
    return table


def _cell(text: str) -> Any:
    from rich.text import Text

    from mirage.domain.texts import printable

    return Text(printable(text))
