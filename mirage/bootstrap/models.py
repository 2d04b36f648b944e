"""Trained models of a running daemon: which are kept, and which is in use."""

from __future__ import annotations

import threading
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
    from collections.abc import Container

    from mirage.bootstrap.measurements import Measurements
    from mirage.bootstrap.service import Service
    from mirage.predictors.artifacts.shelf import Version


_Marks = frozenset[tuple[str, int, int, int, int]]
"""Of the files of a directory: name, inode, size, times of the last change of content and of inode."""


class ModelDesk:
    """Looks at the models and changes which is in use; the daemon reads its configuration again then.

    For every thread but the loop's.
    """

    def __init__(self, service: Service, measurements: Measurements) -> None:
        self._service = service
        self._measurements = measurements
        self._folder = Path(service.config.service.state) / MODELS
        self._reading = threading.Lock()
        self._damage: dict[Path, tuple[_Marks, str]] = {}

    def installed(self) -> tuple[str, ...]:
        """Names of all installed predictors, the look-ahead included."""
        return (*predictor_names(), LOOKAHEAD)

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        """The configured predictors: active, shadow and fallback."""
        loop = self._service.config.loop
        return loop.predictor, loop.shadows, loop.fallback

    def versions(self) -> tuple[Version, ...]:
        """Every trained model that is kept. Raises ``ArtifactMismatch``."""
        return Shelf(self._folder).versions()

    def in_shadow(self) -> Container[str]:
        """Versions that the daemon itself compares with the active predictor, as ``NAME:VERSION``."""
        return self._service.in_shadow

    def damage(self, version: Version) -> str:
        """Why a version cannot be used, empty if it can.

        Files are read again when their size, times or inodes have changed, and by one thread at a time: many may
        ask for the list, and a model may be large.
        """
        directory = self._folder / version.name / version.version
        with self._reading:
            marks = _marks(directory)
            known = self._damage.get(directory)
            if known is None or known[0] != marks:
                known = self._damage[directory] = marks, Shelf(self._folder).damage(version)
            return known[1]

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        """Put a version in use that is kept. Raises ``ConfigError`` where it has done worse in shadow, unless
        ``force``, ``ArtifactMismatch``, also for one of another cluster, and ``StoreUnavailable``."""
        artifact = self._folder / name / version
        package = read_package(artifact)
        if not force and (problem := objection_to(package.manifest, self._measurements.comparison())):
            raise ConfigError(f"{name} {version}", f"{problem}; promote it with force")
        check_cluster(package.manifest.cluster, read_cluster_name(self._service.config.store.url))
        try_files(package.files, package.manifest, artifact)
        found = Shelf(self._folder).put_in_use(package)
        self._service.models_changed()
        return found

    def rollback(self, name: str) -> Version:
        """Roll back to the former version. Raises ``ConfigError`` without a former version."""
        found = Shelf(self._folder).rollback(name)
        self._service.models_changed()
        return found


def _marks(directory: Path) -> _Marks:
    """Empty where the directory cannot be read."""
    try:
        found = [(path.name, path.lstat()) for path in directory.iterdir()]
    except OSError:
        return frozenset()
    return frozenset(
        (name, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns) for name, about in found
    )
