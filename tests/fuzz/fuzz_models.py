"""Trained data that is loaded again: predictors, agents, tables of examples, results of evaluations."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from fuzzing import Beside, Target
from onnx import TensorProto, helper

from mirage.allocation.ddl.das.policies import ORDERING, PLACEMENT, DasManifest, Process, read_artifact
from mirage.allocation.graph import Graph
from mirage.allocation.inference.relmas import ACTOR, Matching, read_agent
from mirage.allocation.inference.relmas import RelmasManifest as AgentManifest
from mirage.artifact import MANIFEST, digests_of, manifest_text
from mirage.features.schema import schema
from mirage.features.table import Origin
from mirage.modelgraph.checking import refuse_external
from mirage.modelgraph.reading import BadGraph
from mirage.predictors.model_manifest import (
    MODEL,
    RANGES,
    ClusterMark,
    ModelManifest,
    TrainingMark,
    WaitDistribution,
    WaitQuantiles,
)
from mirage.predictors.model_ranges import FeatureRanges
from mirage.predictors.model_registry import CURRENT, ModelRegistry, promoted
from mirage.predictors.onnx_predictor import load_artifact
from mirage.predictors.tree_graphs import Tree, trees_graph
from mirage.training import chunks

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = schema("v2")
LEVELS = (0.1, 0.5, 0.9)
LEAF = Tree(*(np.array([value]) for value in (-1, 0.0, 0, 0)), value=np.ones((1, len(LEVELS)), np.float32))
GRAPH = trees_graph([LEAF], SCHEMA.size, np.zeros(len(LEVELS), np.float32), compare="<")
NETWORK = helper.make_model(
    helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Clip", ["h"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2, 1], np.ones(2, np.float32).tobytes(), raw=True)],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
).SerializeToString()
RANGE = FeatureRanges(*((float(place),) * SCHEMA.size for place in range(5)), (1.0 / SCHEMA.size,) * SCHEMA.size)
PREDICTOR = {MODEL: GRAPH, RANGES: RANGE.text().encode()}
KNOWN = ModelManifest(
    plugin="random-forest",
    plugin_version="1",
    schema=SCHEMA.name,
    schema_hash=SCHEMA.hash,
    cluster=ClusterMark("mini", "f" * 64, (4, 8)),
    training=TrainingMark("trace", "e" * 64, 1, 2, 3, 4),
    seeds=(1, 2),
    answers=WaitQuantiles(LEVELS),
    metrics={"loss": 0.5},
    libraries={"numpy": "2"},
    files=digests_of(PREDICTOR),
)
PREDICTED = asdict(KNOWN)
DISTRIBUTED = PREDICTED | {"answers": asdict(WaitDistribution((0.0, 1.0, 2.0)))}
AGENTS = {ORDERING: NETWORK, PLACEMENT: NETWORK}
DAS = asdict(DasManifest(Process(True, 0.5, 0.1), {}, {}, {}, digests_of(AGENTS)))
AGENT = asdict(AgentManifest("relmas", Matching(), {}, {}, 0.001, {}, digests_of({ACTOR: NETWORK})))


def told(document: Any) -> bytes:
    return manifest_text(document).encode()


def as_manifest(read: Callable[[Path], object], others: dict[str, bytes]) -> Callable[[Any], object]:
    """A document, written as the manifest next to ``others``."""
    beside = Beside(read, MANIFEST, others, folder=True)
    return lambda document: beside(json.dumps(document))


def predictor(folder: Path) -> None:
    found = load_artifact(folder)
    assert found.manifest.answers.width >= len(LEVELS)


def listed(name: str) -> Callable[[bytes], object]:
    """One of a predictor's files, which the manifest lists as it is."""

    def read(content: bytes) -> None:
        contents = PREDICTOR | {name: content}
        manifest = told(asdict(KNOWN) | {"files": digests_of(contents)})
        Beside(predictor, MANIFEST, contents, folder=True)(manifest)

    return read


def shelf(folder: Path) -> None:
    ModelRegistry(folder).versions()
    promoted(folder / "random-forest")


def graph(content: bytes) -> None:
    Graph(content, Path("actor.onnx"))


SHELF = {f"random-forest/{'0' * 12}/{name}": content for name, content in PREDICTOR.items()}
SHELF[f"random-forest/{'0' * 12}/{MANIFEST}"] = told(asdict(KNOWN))

ORIGIN = Origin("mini", "f" * 64, "trace", "e" * 64, 5_000, 0, 3_600, 1_800, 600)
TABLE = chunks.TableManifest(SCHEMA.name, SCHEMA.hash, ORIGIN, (1,), 3_600, "p", 1)
TABLED = asdict(TABLE)


def chunk() -> bytes:
    shapes = {"features": (2, 3, SCHEMA.size), "submit": (2, 3), "start": (2, 3)}
    arrays = {name: np.zeros(shapes.get(name, (2,)), np.int64) for name in chunks.ARRAYS}
    with TemporaryDirectory() as place:
        chunks.write_chunk(Path(place), 0, TABLE, arrays)
        return chunks.chunk_path(Path(place), 0).read_bytes()


def inner(content: bytes) -> None:
    """One array of a chunk, in an archive that is whole."""
    into = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(CHUNK)) as old, zipfile.ZipFile(into, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name == "submit.npy" else old.read(name))
    Beside(lambda path: chunks.read_table(path.parent), "chunk-0000.npz", IN_TABLE)(into.getvalue())


CHUNK = chunk()
IN_TABLE = {chunks.MANIFEST: TABLE.text().encode()}
with zipfile.ZipFile(io.BytesIO(CHUNK)) as whole:
    ARRAY = whole.read("submit.npy")

TARGETS = (
    Target("manifest of a predictor", as_manifest(predictor, PREDICTOR), (PREDICTED, DISTRIBUTED), names="m"),
    Target(
        "manifest of a predictor, bytes",
        Beside(predictor, MANIFEST, PREDICTOR, folder=True),
        (told(asdict(KNOWN)),),
    ),
    Target("ranges of a predictor", listed(RANGES), (PREDICTOR[RANGES],), names=RANGES),
    Target("graph of a predictor", listed(MODEL), (GRAPH,), names=MODEL),
    Target("registry of models", Beside(shelf, f"random-forest/{CURRENT}", SHELF), (f"{'0' * 12}\n".encode(),)),
    Target("manifest of DAS", as_manifest(read_artifact, AGENTS), (DAS,), names=str(MANIFEST)),
    Target(
        "manifest of RELMAS",
        as_manifest(lambda path: read_agent(path, "relmas"), {ACTOR: NETWORK}),
        (AGENT,),
        names=MANIFEST,
    ),
    Target("graph of an agent", graph, (NETWORK,), names="actor.onnx"),
    Target("network that a worker serves", refuse_external, (GRAPH, NETWORK), allowed=(BadGraph,)),
    Target(
        "manifest of a table",
        lambda document: Beside(chunks.read_table, MANIFEST, {"chunk-0000.npz": CHUNK}, folder=True)(
            json.dumps(document)
        ),
        (TABLED,),
    ),
    Target(
        "chunk of a table",
        Beside(lambda path: chunks.read_table(path.parent), "chunk-0000.npz", IN_TABLE),
        (CHUNK,),
    ),
    Target("array of a chunk", inner, (ARRAY,)),
)
