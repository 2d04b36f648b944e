"""Trained models of a running daemon, and the accuracy of its predictors on its own handovers.

Which models are kept, and which is in use; accuracy is measured periodically.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import MODELS
from mirage.domain.errors import ConfigError
from mirage.domain.job import JobRequest
from mirage.features.waitclass import class_of
from mirage.predictors.members import LOOKAHEAD
from mirage.predictors.model_manifest import check_cluster
from mirage.predictors.model_registry import ModelRegistry, read_package
from mirage.predictors.model_trial import try_files
from mirage.predictors.registry import predictor_names
from mirage.replay.shadows import SPAN, compared, compared_by_partition, judged_handovers, objection_to
from mirage.store.about import read_cluster_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from mirage.bootstrap.service import DaemonService
    from mirage.domain.job import Seconds
    from mirage.domain.objective import Weights
    from mirage.ports import Clock
    from mirage.predictors.model_registry import Version
    from mirage.replay.shadows import JudgedHandover, ShadowScore
    from mirage.store.opening import Store

LATEST = 300
"""Handovers within ``SPAN``: each is thousands of lines of the journal where all of them have to be read."""
_LAST_LINES = 40
"""Of each link, for its forecasts as it was submitted: there is one line a predictor and cycle."""
_HOLDS = 60.0
"""Real seconds."""
_SHARE = 50.0
"""Validity of a result per second that it took to compute: measuring must not slow down the daemon."""


@dataclass(slots=True)
class _Measuring:
    """One kind of measurement, made by the first caller when it is due; others wait for it."""

    make: Callable[[], tuple[JudgedHandover, ...]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[JudgedHandover, ...] = ()
    until: float = 0.0

    def latest(self) -> tuple[JudgedHandover, ...]:
        with self.lock:
            began = time.monotonic()
            if began >= self.until:
                self.found = self.make()
                took = time.monotonic() - began
                self.until = time.monotonic() + max(_HOLDS, _SHARE * took)
            return self.found


class AccuracyMeasurements:
    """For every thread but the loop's: measuring may take seconds. All raise ``StoreUnavailable``."""

    def __init__(self, store: Store, clock: Clock, weights: Callable[[], Weights]) -> None:
        self._weights, self._clock = weights, clock

        def since() -> int:
            return clock.now() - SPAN

        self._forecasts = _Measuring(lambda: tuple(judged_handovers(store, since(), LATEST, _LAST_LINES)))
        self._whole = _Measuring(lambda: tuple(judged_handovers(store, since(), LATEST)))

    def errors(self, of: JobRequest | str | None = None) -> tuple[ShadowScore, ...]:
        """Every predictor's forecasts against real starts, active predictors first; handovers that a predictor did
        not decide itself are unknown. ``of``: where links were of the class of such a job, or ran in that
        partition."""
        judged = self._forecasts.latest()
        if isinstance(of, str):
            judged = tuple(each for each in judged if each.partition == of)
        elif of is not None:
            judged = tuple(each for each in judged if _class(each) == class_of(of))
        return compared((each.judged for each in judged), self._weights())

    def comparison(self, span: Seconds = SPAN) -> tuple[ShadowScore, ...]:
        """Every predictor in all respects, by partition, on the handovers of the last ``span`` seconds."""
        since = self._clock.now() - span
        return compared_by_partition(
            [each for each in self._whole.latest() if each.start >= since], self._weights()
        )


def _class(handover: JudgedHandover) -> tuple[str, int, int]:
    return class_of(JobRequest("", "", handover.limit, handover.nodes, handover.partition))


_Marks = frozenset[tuple[str, int, int, int, int]]
"""Of the files of a directory: name, inode, size, times of the last change of content and of inode."""


class ModelDesk:
    """Looks at the models and changes which is in use; the daemon reads its configuration again then.

    For every thread but the loop's.
    """

    def __init__(self, service: DaemonService, measurements: AccuracyMeasurements) -> None:
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
        return ModelRegistry(self._folder).versions()

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
                known = self._damage[directory] = marks, ModelRegistry(self._folder).damage(version)
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
        found = ModelRegistry(self._folder).put_in_use(package)
        self._service.models_changed()
        return found

    def rollback(self, name: str) -> Version:
        """Roll back to the former version. Raises ``ConfigError`` without a former version."""
        found = ModelRegistry(self._folder).rollback(name)
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
