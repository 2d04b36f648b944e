"""The SDK: all that a predictor in a separate package may import.

A package offers in the entry-point group ``mirage.predictors`` a factory of the parameter's text, and in
``mirage.trainers`` a factory without arguments of a ``Trainer``. A trained predictor is a directory that
``write_artifact`` has written: ``mirage train NAME`` makes it, ``NAME:FOLDER`` loads it, with numpy and
onnxruntime alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mirage.domain.decision import (
    ActionScores,
    Observation,
    PlannedStart,
    PlanStatus,
    Prediction,
    RecentWaits,
    Standing,
    WaitForecast,
    Wants,
    Window,
)
from mirage.domain.errors import ArtifactMismatch, ConfigError, MirageError, MissingExtra
from mirage.domain.objective import Weights, objective
from mirage.features.schema import FeatureSchema, encode, schema
from mirage.features.table import Origin, Table
from mirage.onnximport import onnx_runtime
from mirage.ports import Predictor
from mirage.predictors.conformance import check_predictor, sample_observation
from mirage.predictors.model_manifest import Scores, WaitDistribution, WaitQuantiles
from mirage.predictors.model_writing import Learnt, write_artifact
from mirage.predictors.onnx_predictor import ArtifactPredictor, load_artifact
from mirage.predictors.tables import (
    at_level,
    forecast_scores,
    policy_scores,
    stacked_tables,
    submit_points,
)
from mirage.predictors.tree_graphs import Tree, floor32, trees_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ActionScores",
    "ArtifactMismatch",
    "ArtifactPredictor",
    "ConfigError",
    "FeatureSchema",
    "Learnt",
    "MirageError",
    "MissingExtra",
    "Observation",
    "Origin",
    "PlanStatus",
    "PlannedStart",
    "Prediction",
    "Predictor",
    "RecentWaits",
    "Scores",
    "Standing",
    "Table",
    "Trainer",
    "Tree",
    "WaitDistribution",
    "WaitForecast",
    "WaitQuantiles",
    "Wants",
    "Weights",
    "Window",
    "artifact_factory",
    "at_level",
    "check_predictor",
    "encode",
    "floor32",
    "forecast_scores",
    "load_artifact",
    "objective",
    "onnx_runtime",
    "policy_scores",
    "sample_observation",
    "schema",
    "stacked_tables",
    "submit_points",
    "training_libraries",
    "trees_graph",
    "write_artifact",
]


class Trainer(Protocol):
    """Learns from counterfactual handovers."""

    def train(self, table: Table, validation: Table, seed: int, out: Path) -> Path:
        """Learn from ``table``, choose on ``validation`` (later handovers), and write the artifact ``out``.

        Equal arguments give equal predictions. Raises ``ConfigError`` for a table it cannot learn from and
        ``MissingExtra`` where a library for training is not installed.
        """


def artifact_factory(plugin: str) -> Callable[[str], ArtifactPredictor]:
    """The factory of a predictor that is nothing but an artifact, for the entry-point group."""

    def build(parameter: str) -> ArtifactPredictor:
        if not parameter:
            raise ValueError(
                f"needs a trained model: `mirage train {plugin}` makes one, `mirage models promote` activates it; "
                f"a configuration may also name the model's directory, {plugin}:DIR"
            )
        return load_artifact(Path(parameter).expanduser(), f"{plugin}:{parameter}", plugin=plugin)

    return build


@contextmanager
def training_libraries(package: str) -> Iterator[None]:
    """For imports that only training needs. Raises ``MissingExtra``, naming the extra ``train`` of the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(f"training by {package}, which imports {error.name},", "train", package) from error
