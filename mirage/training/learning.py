"""One training, from tables on disk to a model, in this process or in a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.predictors.registry import build_trainer
from mirage.training.tables import load_table

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.training.lessons import Lessons


@dataclass(frozen=True, slots=True)
class Training:
    """Picklable and small."""

    predictor: str
    lessons: Lessons
    tables: tuple[Path, ...]
    """Directories: of the cluster as it is, then of the cluster with fewer nodes."""
    seed: int
    out: Path

    def run(self) -> None:
        """Write the model. Raises as ``Lessons.split`` and the trainer do."""
        whole, *smaller = (load_table(folder) for folder in self.tables)
        build_trainer(self.predictor).train(*self.lessons.split(whole, smaller), self.seed, self.out)
