"""From tables to an artifact, the same for every network that scores holding and submitting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.plugin import ConfigError, Learnt, Scores, policy_scores, stacked_tables, write_artifact
from mirage_encoders.council import Council, best_margin
from mirage_encoders.course import Course, Learned
from mirage_encoders.export import exported
from mirage_encoders.judging import Leads, first_submission, scores

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.plugin import Table, Weights

HOUR = 3_600
SAMPLE = 512

Learn = Callable[["Table", "Table | None", int, Course], Learned]
"""Table, validation (``None``: train for the length of the course), seed, course."""


@dataclass(frozen=True, slots=True)
class ScoreTrainer:
    """Trains until validation stops it, then as long again on all handovers together; several times.

    The result is the mean of all members, with the margin that was best on the validation set for members that
    were not trained on it.
    """

    plugin: str
    version: str
    learn: Learn
    course: Course
    weights: Weights
    members: int = 3

    def train(self, table: Table, validation: Table, seed: int, out: Path) -> Path:
        """As ``mirage.plugin.Trainer``."""
        if not len(table) or not len(validation):
            raise ConfigError(
                self.plugin, "needs training handovers and later validation handovers; widen the span"
            )
        seeds = np.random.SeedSequence(seed).generate_state(self.members).tolist()
        both = stacked_tables([table, validation])
        leads = usual_leads(both, self.weights)
        chosen = [self.learn(table, validation, one, self.course) for one in seeds]
        council = Council([learned.network for learned in chosen])
        margin = best_margin(scores(council, validation), validation, self.weights)
        said = scores(Council([learned.network for learned in chosen], margin), validation)
        metrics = policy_scores(validation, first_submission(said, validation, leads), self.weights)
        final = [
            self.learn(both, None, one, learned.course).network for one, learned in zip(seeds, chosen, strict=True)
        ]
        learnt = Learnt(
            plugin=self.plugin,
            plugin_version=self.version,
            model=exported(Council(final, margin), _sample(both)),
            answers=Scores(min_lead=leads.least / HOUR, max_lead=leads.most / HOUR),
            seeds=(seed, *seeds),
            metrics=metrics | {"margin": margin, "members": self.members},
            curves={f"{name}_{k}": curve for k, one in enumerate(chosen) for name, curve in _curves(one).items()},
            packages=("torch", "stable-baselines3", "gymnasium"),
        )
        return write_artifact(out, learnt, both)


def _curves(learned: Learned) -> dict[str, list[float]]:
    """The course with the numbers chosen on the validation set: epochs, steps."""
    return learned.curves | {"course": [learned.course.epochs, learned.course.steps]}


def usual_leads(table: Table, weights: Weights) -> Leads:
    """Never before the earliest best time in the table, less a point of the grid; until the end."""
    lead = table.end[:, None] - table.submit
    best = np.take_along_axis(lead, table.best(weights)[:, None], axis=1)
    return Leads(0, int(best.max()) + table.origin.grid)


def _sample(table: Table) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    flat = table.features.reshape(-1, table.schema.size)
    return np.ascontiguousarray(flat[:: max(1, len(flat) // SAMPLE)])
