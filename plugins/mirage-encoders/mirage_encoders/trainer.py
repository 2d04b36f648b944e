"""From tables to an artifact, the same for every network that scores holding and submitting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.plugin import ConfigError, Learnt, Scores, policy_scores, stacked_tables, write_artifact
from mirage_encoders.course import Course, Learned
from mirage_encoders.export import exported
from mirage_encoders.judging import Leads, first_submission, scores

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.plugin import Table, Weights

HOUR = 3_600
SAMPLE = 512

Learn = Callable[["Table", "Table | None", int, Course], Learned]
"""Table, validation (none: learn exactly as long as the course says), seed, course."""


@dataclass(frozen=True, slots=True)
class ScoreTrainer:
    """Learns until validation says stop, then as long again from all hand-overs together."""

    plugin: str
    version: str
    learn: Learn
    course: Course
    weights: Weights

    def train(self, table: Table, validation: Table, seed: int, out: Path) -> Path:
        """As ``mirage.plugin.Trainer``."""
        if not len(table) or not len(validation):
            raise ConfigError(self.plugin, "needs hand-overs to learn from and later ones to choose by")
        chosen = self.learn(table, validation, seed, self.course)
        both = stacked_tables([table, validation])
        leads = usual_leads(both, self.weights)
        points = first_submission(scores(chosen.network, validation), validation, leads)
        metrics = policy_scores(validation, points, self.weights)
        final = self.learn(both, None, seed, chosen.course)
        learnt = Learnt(
            plugin=self.plugin,
            plugin_version=self.version,
            model=exported(final.network, _sample(both)),
            answers=Scores(min_lead=leads.least / HOUR, max_lead=leads.most / HOUR),
            seeds=(seed,),
            metrics=metrics | {"steps": chosen.course.steps, "pretraining_epochs": chosen.course.epochs},
            curves=chosen.curves,
            packages=("torch", "stable-baselines3", "gymnasium"),
        )
        return write_artifact(out, learnt, both)


def usual_leads(table: Table, weights: Weights) -> Leads:
    """No earlier than was ever best in the table, less a point of the grid; until the end."""
    lead = table.end[:, None] - table.submit
    best = np.take_along_axis(lead, table.best(weights)[:, None], axis=1)
    return Leads(0, int(best.max()) + table.origin.grid)


def _sample(table: Table) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    flat = table.features.reshape(-1, table.schema.size)
    return np.ascontiguousarray(flat[:: max(1, len(flat) // SAMPLE)])
