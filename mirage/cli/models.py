"""``mirage models``: list, compare, promote and roll back trained models; ``mirage plugins``.

Without a daemon the model registry's files are read into documents of the REST API.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.arguments import UsageError
from mirage.cli.connection import connect, exit_codes
from mirage.cli.daemon import become_owner, become_owner_of_files, load
from mirage.cli.printing import show, show_error, show_table
from mirage.cli.shadows import FilesOf, objection, shadow_command
from mirage.cli.shared_options import AsJson, Socket
from mirage.client.client import predictor_path
from mirage.client.predictors import ModelAnswer, ModelVersion, Predictors
from mirage.client.records import read, read_all
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from mirage.config.loading import Loaded
    from mirage.predictors.model_manifest import ModelManifest
    from mirage.predictors.model_registry import ModelRegistry, Version

_KEPT = re.compile(r"([a-z0-9_-]{1,40}):([^/]+)")


def kept_version(text: str) -> tuple[str, str]:
    """Split ``NAME:VERSION``; both are empty if ``text`` names a directory."""
    found = _KEPT.fullmatch(text)
    return (found[1], found[2]) if found else ("", "")


def list_files(models: str, config: str) -> list[dict[str, Any]]:
    """List every registered version. Raises ``ArtifactMismatch`` and ``ConfigError``."""
    from mirage.predictors.model_registry import ModelRegistry

    shelf = ModelRegistry(models_folder(models, load(config) if config else None))
    return [_document(shelf, version) for version in shelf.versions()]


def promote_files(
    artifact: str, models: str, config: str, objection: Callable[[ModelManifest, Loaded], None] | None
) -> tuple[dict[str, Any], Path]:
    """Register and promote a directory or a registered version; return it with its registry.

    ``objection`` raises if the model should not be promoted. Without it, but with ``models``, the configuration is
    read only if named. Raises ``ArtifactMismatch``, also for a model of another cluster, and ``ConfigError``.
    """
    from mirage.predictors.model_manifest import check_cluster
    from mirage.predictors.model_registry import ModelRegistry, read_package
    from mirage.predictors.model_trial import try_files
    from mirage.store.about import read_cluster_name

    # Only root may be able to read the artifact and the configuration.
    loaded = load(config) if config or objection or not models else None
    folder = models_folder(models, loaded if config else None)
    name, version = kept_version(artifact)
    source = folder / name / version if name else Path(artifact)
    package = read_package(source)
    _become_owner(folder, loaded)
    if loaded:
        check_cluster(package.manifest.cluster, read_cluster_name(loaded.config.store.url))
    if objection and loaded:
        objection(package.manifest, loaded)
    try_files(package.files, package.manifest, source)
    shelf = ModelRegistry(folder)
    return _document(shelf, shelf.put_in_use(package)), folder


def rollback_files(name: str, models: str, config: str) -> tuple[dict[str, Any], Path]:
    """Roll back to the version before; return it with its registry. Raises ``ConfigError``."""
    from mirage.predictors.model_registry import ModelRegistry

    loaded = load(config) if config else None
    folder = models_folder(models, loaded)
    _become_owner(folder, loaded)
    shelf = ModelRegistry(folder)
    return _document(shelf, shelf.rollback(name)), folder


def models_folder(models: str, loaded: Loaded | None = None) -> Path:
    """Return the directory of the registry, by default within the daemon's state directory."""
    from mirage.bootstrap.predictors import MODELS
    from mirage.config.places import used_places

    if models:
        return Path(models)
    if loaded is not None:
        return Path(loaded.config.service.state) / MODELS
    return used_places(os.environ, os.getuid())[0] / MODELS


def _become_owner(folder: Path, loaded: Loaded | None) -> None:
    if loaded is not None:
        become_owner_of_files(loaded)
    become_owner(folder)


def _document(shelf: ModelRegistry, version: Version) -> dict[str, Any]:
    from mirage.api.routes.predictors import model_version

    in_shadow = {f"{name}:{directory.name}" for name, directory in shelf.watched().items()}
    return model_version(version, in_shadow, shelf.damage(version)).model_dump(mode="json")


def plugins_command(as_json: AsJson = False) -> None:
    """List the installed predictors, as --predictor takes them."""
    from mirage.predictors.members import LOOKAHEAD
    from mirage.predictors.registry import predictor_names

    names = (*predictor_names(), LOOKAHEAD)
    typer.echo(json.dumps({"predictors": list(names)}) if as_json else "\n".join(names))


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

    def refuse(manifest: ModelManifest, loaded: Loaded) -> None:
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
