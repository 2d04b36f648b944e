"""Plan of a comparison: methods, clusters, sizes, and the spans for training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.errors import ConfigError
from mirage.features.schema import schema
from mirage.features.summary import LENGTH, SPACING
from mirage.predictors.lookahead import Lookahead
from mirage.predictors.members import COMBINED, members_of
from mirage.replay.plan import ReplayPlan
from mirage.training.dataset_split import DatasetSplit
from mirage.training.tables import TablePlan

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable

PART = 12
"""Consecutive episodes that are run, and stored, together."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the comparison."""

    name: str
    """Name of the predictor in the option, such as ``fixed:6h``."""
    taught: tuple[str, ...] = ()
    """Predictors that are trained for it: itself, or members of an ensemble; empty without training."""
    seeds: int = 0
    """Number of trainings of each; 0: not trained."""
    error: str = ""
    """Deliberate error of the look-ahead (``planner.ERRORS``); empty: no error."""

    @property
    def label(self) -> str:
        """Name in reports."""
        return f"{self.name}, {self.error}" if self.error else self.name

    @property
    def plans(self) -> bool:
        """Whether it simulates the cluster."""
        return Lookahead.name in parts_of(self.name)

    @property
    def runs(self) -> tuple[EvaluationRun, ...]:
        """The runs of the method: one for each seed."""
        return tuple(EvaluationRun(self, seed) for seed in range(max(1, self.seeds)))


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A method with one of its seeds."""

    method: Method
    seed: int

    @property
    def label(self) -> str:
        """Name in files and progress messages."""
        return f"{self.method.label} seed {self.seed}" if self.method.seeds else self.method.label


@dataclass(frozen=True, slots=True)
class EvaluationSetting:
    """Size of a cluster, and of the service."""

    cluster_nodes: int
    nodes: int


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Everything that figures depend on besides trace and cluster. Times and durations in seconds."""

    methods: tuple[Method, ...]
    settings: tuple[EvaluationSetting, ...]
    train_from: Seconds
    """First training handover."""
    validate_from: Seconds
    """Handovers from here on validate."""
    test_from: Seconds
    """First episode; no later event is used in training."""
    test_to: Seconds
    """No episode starts after this."""
    limit: Seconds = 48 * 3_600
    """Time limit of the links; they run to it."""
    every: Seconds = 4 * 3_600
    """Seconds between episodes."""
    teach_every: Seconds = 4 * 3_600
    """Seconds between training handovers."""
    grid: Seconds = 30 * 60
    """Seconds between training submit times."""
    teach_sizes: tuple[int, ...] = ()
    """Additional cluster sizes whose handovers before ``validate_from`` train as well."""
    partition: str = ""
    schema: str = "v2"

    def check(self, trace: JobTable) -> None:
        """Raise ``ConfigError`` for a plan that cannot run on this trace."""
        if not self.methods or not self.settings:
            raise ConfigError("--methods", "name at least one method")
        for setting in self.settings:
            self._check_episodes(setting, trace)
        if any(method.seeds for method in self.methods):
            schema(self.schema)
            _ = self.lessons
            self._check_history(trace)
            self.tables.check(trace)

    def _check_episodes(self, setting: EvaluationSetting, trace: JobTable) -> None:
        """Check as the replay does, with this command's option names."""
        try:
            self.replay(setting).check(trace)
        except ConfigError as error:
            option = {"--start": "--test-from", "--end": "--test-to"}.get(error.where, error.where)
            raise ConfigError(option, error.problem.replace("--start", "--test-from")) from None

    def _check_history(self, trace: JobTable) -> None:
        first = int(trace.submit[0])
        if self.train_from < first + LENGTH * SPACING:
            raise ConfigError(
                "--train-from",
                f"{format_instant(self.train_from)} leaves no day of the queue before the first handover: the "
                f"trace begins at {format_instant(first)}",
            )

    @property
    def lessons(self) -> DatasetSplit:
        """The split by time. Raises ``ConfigError`` for times that do not ascend."""
        return DatasetSplit(self.train_from, self.validate_from, self.test_from)

    @property
    def tables(self) -> TablePlan:
        """The handovers for training and validation."""
        sizes = tuple(sorted({setting.nodes for setting in self.settings}))
        return TablePlan(
            self.train_from, self.test_from, sizes, self.limit, self.teach_every, self.grid, self.partition
        )

    def replay(self, setting: EvaluationSetting) -> ReplayPlan:
        """The handovers of the test."""
        return ReplayPlan(
            (), setting.nodes, self.limit, self.test_from, self.test_to, self.every, partition=self.partition
        )

    def parts(self) -> tuple[range, ...]:
        """Numbers of the episodes, in groups of a few days."""
        total = len(range(self.test_from, self.test_to + 1, self.every))
        return tuple(range(first, min(first + PART, total)) for first in range(0, total, PART))


def parts_of(name: str) -> tuple[str, ...]:
    """Name of a predictor, or names of an ensemble's members. Raises ``ConfigError``."""
    kind, _, members = name.partition(":")
    try:
        return members_of(kind, members) if kind in COMBINED else (name,)
    except ValueError as error:
        raise ConfigError("--methods", f"{name!r}: {error}") from None


def methods_of(
    names: tuple[str, ...], learned: frozenset[str], seeds: int, errors: tuple[str, ...]
) -> list[Method]:
    """A method for each name, and the look-ahead again for each error.

    ``learned``: which of the names and of the ensembles' members are trained. Raises ``ConfigError`` for a
    duplicate name, and for errors without a look-ahead.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("--methods", f"duplicate method {name!r}")
    if errors and Lookahead.name not in names:
        raise ConfigError("--planner-error", f"needs the method {Lookahead.name} in --methods")
    found = []
    for name in names:
        taught = tuple(part for part in parts_of(name) if part in learned)
        found.append(Method(name, taught, seeds if taught else 0))
        found += [Method(name, error=error) for error in errors if name == Lookahead.name]
    return found
