"""From tables to an artifact, the same for every network that scores holding and submitting.

Several networks are trained on the same handovers with different seeds and used as one. An export to ONNX is
verified: it must return the same as the networks.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.plugin import ConfigError, Learnt, Scores, onnx_runtime, policy_scores, stacked_tables, write_artifact
from mirage_encoders.selection import Leads, first_submission, mean_cost, scores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirage.plugin import Table, Weights


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """Most steps with a validation set; exact number of steps without one."""

    epochs: int
    """Epochs of supervised training before reinforcement learning."""
    steps: int
    """Steps of the environment, summed over all parallel handovers."""


@dataclass(frozen=True, slots=True)
class LearnedScores:
    """A network that scores (hold, submit), and how it was trained."""

    network: nn.Module
    course: TrainingLength
    """With which the network was found that did best on validation."""
    curves: dict[str, list[float]]


Float32 = NDArray[np.float32]

OPSET = 17
TOLERANCE = 1e-5
"""Tolerance, relative to the greater of 1 and the score."""


def exported(network: nn.Module, sample: Float32) -> bytes:
    """The network as ONNX: ``features`` (N, F) to ``scores`` (N, 2), both float32.

    Raises ``RuntimeError`` where the export gives other results on ``sample``, shape (N, F).
    """
    network = network.cpu().eval()
    vectors = torch.from_numpy(sample)
    written = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing needs no further package; it warns that there is a newer one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (vectors[:2],),
            written,  # type: ignore[arg-type]  # declared too narrowly: files are taken
            dynamo=False,
            opset_version=OPSET,
            input_names=["features"],
            output_names=["scores"],
            dynamic_axes={"features": {0: "batch"}, "scores": {0: "batch"}},
        )
    with torch.no_grad():
        wanted = network(vectors).numpy()
    found = _answers(written.getvalue(), sample)
    worst = float(np.max(np.abs(found - wanted) / np.maximum(1, np.abs(wanted))))
    if not worst <= TOLERANCE:
        raise RuntimeError(
            f"internal error (bug in Mirage): the exported network differs from the trained one by {worst:.2g}"
        )
    return written.getvalue()


def _answers(model: bytes, sample: Float32) -> Float32:
    session: Any = onnx_runtime().InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"features": sample})[0])


CANDIDATES = 81
"""Margins tried."""


class Council(nn.Module):
    """The mean of the members' scores, and a margin in favour of submitting."""

    def __init__(self, members: Sequence[nn.Module], margin: float = 0.0) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.margin = nn.Buffer(torch.tensor([0.0, margin]))

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, 2): hold, submit."""
        return torch.stack([member(features) for member in self.members]).mean(dim=0) + self.margin


def best_margin(said: NDArray[np.float32], table: Table, weights: Weights) -> float:
    """Margin to add to scores of submitting for the lowest cost on handovers outside the training set.

    ``said`` are scores of (hold, submit), shape (E, G, 2).
    A network trained on the past of a growing queue submits late; the margin corrects this. Of equally good
    margins the smallest is taken.
    """
    lacking = said[:, :-1, 0] - said[:, :-1, 1]
    candidates: list[float] = [0.0, *np.quantile(lacking, np.linspace(0, 1, CANDIDATES)).tolist()]
    costs = [mean_cost(said + np.array([0, margin], dtype=np.float32), table, weights) for margin in candidates]
    least = min(costs)
    return min((margin for margin, cost in zip(candidates, costs, strict=True) if cost <= least), key=abs)


HOUR = 3_600
SAMPLE = 512

Learn = Callable[["Table", "Table | None", int, TrainingLength], LearnedScores]
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
    course: TrainingLength
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


def _curves(learned: LearnedScores) -> dict[str, list[float]]:
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
