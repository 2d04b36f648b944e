"""A trained model as a predictor. Needs onnxruntime; loads files only after they were verified.

An observation becomes a vector once for all models that are asked about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ArtifactMismatch
from mirage.features.schema import encode, schema
from mirage.features.summary import node_counts
from mirage.modelgraph.checking import PREDICTOR, check_graph
from mirage.modelgraph.reading import BadGraph
from mirage.onnximport import onnx_runtime
from mirage.predictors.model_manifest import MODEL, ModelManifest, read_manifest, verify_files
from mirage.predictors.model_ranges import RangeCheck, known_ranges, known_schema
from mirage.predictors.model_registry import promoted, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirage.domain.decision import Observation, Prediction
    from mirage.features.table import FeatureSchema

_last: list[tuple[Observation, FeatureSchema, NDArray[np.float32]]] = []
"""At most the last one: a cycle queries active and shadow predictors about the same observation in turn."""


def vector_of(schema: FeatureSchema, observation: Observation) -> NDArray[np.float32]:
    """As ``encode``, read-only. Any thread may ask: in a race the same is worked out twice."""
    for seen, known, vector in tuple(_last):
        if seen is observation and known == schema:
            return vector
    vector = encode(schema, observation)
    vector.flags.writeable = False
    _last[:] = [(observation, schema, vector)]
    return vector


Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

RESIZED = 0.25
"""Relative change of a partition's node count since the training that is accepted."""


class OnnxModel:
    """The ONNX graph of an artifact: one thread, any number of observations per call."""

    def __init__(self, content: bytes, path: Path, features: int, width: int) -> None:
        """Raises ``ArtifactMismatch`` for a graph that cannot be run or has another shape, ``MissingExtra``."""
        try:
            check_graph(content, PREDICTOR, features)
        except BadGraph as error:
            told = f"must not be run: the graph {error}; train the model again"
            raise ArtifactMismatch(str(path), told) from None
        runtime = onnx_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session: Any = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            self._input = self._session.get_inputs()[0].name
            shape = self.run(np.zeros((2, features), dtype=np.float32)).shape
        except Exception as error:  # onnxruntime's own kinds are many
            raise ArtifactMismatch(str(path), f"cannot be run: {error}; train the model again") from error
        if shape != (2, width):
            told = f"answers {shape[1:]} numbers where the manifest says {width}"
            raise ArtifactMismatch(str(path), f"{told}: train the model again")

    def run(self, vectors: Float32) -> Float64:
        """Shape (N, F) in, (N, width) out."""
        return np.asarray(self._session.run(None, {self._input: vectors})[0], dtype=np.float64)


class ArtifactPredictor:
    """Answers with a trained model; rejects observations that are unlike those of its training."""

    def __init__(
        self, folder: Path, manifest: ModelManifest, model: OnnxModel, likeness: RangeCheck, name: str
    ) -> None:
        self.name = name
        self.version = version_of(folder)
        self.manifest = manifest
        self._folder = folder
        self._schema = schema(manifest.schema)
        self.wants = self._schema.wants
        self._model = model
        self._likeness = likeness

    def predict(self, observation: Observation) -> Prediction:
        """One answer. Raises as ``predict_all``."""
        return self.predict_all([observation])[0]

    def predict_all(self, observations: Sequence[Observation]) -> list[Prediction]:
        """An answer each, in one run of the model.

        Raises ``ArtifactMismatch`` for an observation unlike those of the training, and ``ValueError`` for one
        that lacks required inputs, or for a result that is not finite.
        """
        vectors = np.stack([self._vector(observation) for observation in observations])
        output = self._model.run(vectors)
        if not np.isfinite(output).all():
            raise ValueError(f"{self._folder}: the model's answer is not finite")
        answers = self.manifest.answers
        return [answers.prediction(row, seen) for row, seen in zip(output, observations, strict=True)]

    def _vector(self, observation: Observation) -> Float32:
        vector = vector_of(self._schema, observation)
        doubt = self._size_doubt(observation) or self._likeness.doubt(vector)
        if doubt:
            raise ArtifactMismatch(self._folder.name, doubt)
        return vector

    def _size_doubt(self, observation: Observation) -> str:
        trained = self.manifest.cluster.nodes
        if trained is None or not observation.snapshot.partitions:
            return ""
        total = node_counts(observation.snapshot, observation.successor.partition)[0]
        least, most = trained[0] * (1 - RESIZED), trained[1] * (1 + RESIZED)
        if least <= total <= most:
            return ""
        return f"the partition has {total} nodes; the model was trained for {trained[0]} to {trained[1]}"


def load_artifact(folder: Path, name: str = "", *, plugin: str = "") -> ArtifactPredictor:
    """The predictor of an artifact, or of the version promoted in a directory of versions.

    ``name`` is how the user names it; ``plugin`` what must have made it, checked where given. Raises
    ``ArtifactMismatch`` naming the file, ``MissingExtra``.
    """
    folder = promoted(folder)
    manifest = read_manifest(folder)
    path = str(folder / "manifest.json")
    if plugin and manifest.plugin != plugin:
        raise ArtifactMismatch(
            path, f"was made by {manifest.plugin!r}, not by {plugin!r}: name it as that predictor"
        )
    known = known_schema(manifest, path)
    contents = verify_files(folder, manifest)
    ranges = known_ranges(contents, known, folder)
    model = OnnxModel(contents[MODEL], folder / MODEL, known.size, manifest.answers.width)
    return ArtifactPredictor(folder, manifest, model, RangeCheck(ranges, known), name or manifest.plugin)
