"""``mirage models`` without a daemon: read the registry's files into documents of the REST API."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.cli.daemonaccount import become_owner, become_owner_of_files, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.config.loading import Loaded
    from mirage.predictors.artifacts.manifest import Manifest
    from mirage.predictors.artifacts.shelf import Shelf, Version

_KEPT = re.compile(r"([a-z0-9_-]{1,40}):([^/]+)")


def kept_version(text: str) -> tuple[str, str]:
    """Split ``NAME:VERSION``; both are empty if ``text`` names a directory."""
    found = _KEPT.fullmatch(text)
    return (found[1], found[2]) if found else ("", "")


def list_files(models: str, config: str) -> list[dict[str, Any]]:
    """List every registered version. Raises ``ArtifactMismatch`` and ``ConfigError``."""
    from mirage.predictors.artifacts.shelf import Shelf

    shelf = Shelf(models_folder(models, load(config) if config else None))
    return [_document(shelf, version) for version in shelf.versions()]


def promote_files(
    artifact: str, models: str, config: str, objection: Callable[[Manifest, Loaded], None] | None
) -> tuple[dict[str, Any], Path]:
    """Register and promote a directory or a registered version; return it with its registry.

    ``objection`` raises if the model should not be promoted. Without it, but with ``models``, the configuration is
    read only if named. Raises ``ArtifactMismatch``, also for a model of another cluster, and ``ConfigError``.
    """
    from mirage.predictors.artifacts.home import check_cluster
    from mirage.predictors.artifacts.shelf import Shelf, read_package
    from mirage.predictors.artifacts.trial import try_files
    from mirage.store.clustername import read_cluster_name

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
    shelf = Shelf(folder)
    return _document(shelf, shelf.put_in_use(package)), folder


def rollback_files(name: str, models: str, config: str) -> tuple[dict[str, Any], Path]:
    """Roll back to the version before; return it with its registry. Raises ``ConfigError``."""
    from mirage.predictors.artifacts.shelf import Shelf

    loaded = load(config) if config else None
    folder = models_folder(models, loaded)
    _become_owner(folder, loaded)
    shelf = Shelf(folder)
    return _document(shelf, shelf.rollback(name)), folder


def models_folder(models: str, loaded: Loaded | None = None) -> Path:
    """Return the directory of the registry, by default within the daemon's state directory."""
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


def _document(shelf: Shelf, version: Version) -> dict[str, Any]:
    from mirage.api.documents.predictors import model_version

    in_shadow = {f"{name}:{directory.name}" for name, directory in shelf.watched().items()}
    return model_version(version, in_shadow, shelf.damage(version)).model_dump(mode="json")
