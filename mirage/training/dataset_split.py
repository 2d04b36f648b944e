"""One training: tables split by time into training and validation set, so that no later event is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.errors import ConfigError
from mirage.predictors.registry import build_trainer
from mirage.predictors.tables import stacked_tables
from mirage.training.tables import load_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirage.domain.job import Seconds
    from mirage.features.table import Table


@dataclass(frozen=True, slots=True)
class DatasetSplit:
    """Times in seconds."""

    first: Seconds
    """The first handover."""
    validate_from: Seconds
    """Handovers from here on validate; those whose last outcome is known by then train."""
    end: Seconds
    """A handover with any later outcome is left out."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for times that do not ascend."""
        if not self.first < self.validate_from < self.end:
            spelled = " < ".join(format_instant(t) for t in (self.first, self.validate_from, self.end))
            raise ConfigError("--validate-from", f"must lie between --start and --end, not {spelled}")

    def split(self, whole: Table, smaller: Sequence[Table] = ()) -> tuple[Table, Table]:
        """Handovers for training, and those for validation.

        ``whole`` is of the cluster as it is, ``smaller`` of the same cluster with fewer nodes, only for training.
        Raises ``ConfigError`` where either part is empty.
        """
        taught = [_known_by(table, self.validate_from) for table in (whole, *smaller)]
        known = _known_by(whole, self.end)
        teaching, choosing = stacked_tables(taught), known.between(self.validate_from, self.end)
        if not len(teaching):
            until = format_instant(self.validate_from)
            raise ConfigError("--validate-from", f"no handover ends by {until}; use a later time")
        if not len(choosing):
            first = format_instant(self.validate_from)
            raise ConfigError("--end", f"no handover from {first} on ends by {format_instant(self.end)}")
        return teaching, choosing


def _known_by(table: Table, instant: Seconds) -> Table:
    return table.take(table.start.max(axis=1) < instant)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Picklable and small."""

    predictor: str
    lessons: DatasetSplit
    tables: tuple[Path, ...]
    """Directories: of the cluster as it is, then of the cluster with fewer nodes."""
    seed: int
    out: Path

    def run(self) -> None:
        """Write the model. Raises as ``DatasetSplit.split`` and the trainer do."""
        whole, *smaller = (load_table(folder) for folder in self.tables)
        build_trainer(self.predictor).train(*self.lessons.split(whole, smaller), self.seed, self.out)
