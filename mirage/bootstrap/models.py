"""Trained models of a running daemon: which are kept, and which is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import MODELS
from mirage.domain.errors import ConfigError
from mirage.predictors.artifacts.home import check_cluster
from mirage.predictors.artifacts.shelf import Shelf, read_package
from mirage.predictors.artifacts.trial import try_files
from mirage.predictors.naming import LOOKAHEAD
from mirage.predictors.registry import predictor_names
from mirage.replay.promotion import objection_to
from mirage.store.clustername import read_cluster_name

if TYPE_CHECKING:
    from mirage.bootstrap.measurements import Measurements
    from mirage.bootstrap.service import Service
    from mirage.predictors.artifacts.shelf import Version


class ModelDesk:
    """Looks at the models and changes which is in use; the daemon reads its configuration again then.

    For every thread but the loop's.
    """

    def __init__(self, service: Service, measurements: Measurements) -> None:
        self._service = service
        self._measurements = measurements
        self._folder = Path(service.config.service.state) / MODELS

    def installed(self) -> tuple[str, ...]:
        """Names of all predictors."""
        return (*predictor_names(), LOOKAHEAD)

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        """As the configuration names them: in charge, in shadow, and who answers in their place."""
        loop = self._service.config.loop
        return loop.predictor, loop.shadows, loop.fallback

    def versions(self) -> tuple[Version, ...]:
        """Every trained model that is kept. Raises ``ArtifactMismatch``."""
        return Shelf(self._folder).versions()

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        """Put a version in use that is kept. Raises ``ConfigError`` where it has done worse in shadow, unless
        ``force``, ``ArtifactMismatch``, also for one of another cluster, and ``StoreUnavailable``."""
        artifact = self._folder / name / version
        package = read_package(artifact)
        if not force and (problem := objection_to(package.manifest, self._measurements.comparison())):
            raise ConfigError(f"{name} {version}", f"{problem}; force puts it in use all the same")
        check_cluster(package.manifest.cluster, read_cluster_name(self._service.config.store.url))
        try_files(package.files, package.manifest, artifact)
        found = Shelf(self._folder).put_in_use(package)
        self._service.models_changed()
        return found

    def rollback(self, name: str) -> Version:
        """Put the version in use again that was before. Raises ``ConfigError`` where there is none."""
        found = Shelf(self._folder).rollback(name)
        self._service.models_changed()
        return found
