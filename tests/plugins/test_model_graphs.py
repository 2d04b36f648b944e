"""Graphs that no trained model is: files of others, endless loops, huge tensors, trees that lead nowhere."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from learnable import USUAL, learnable, learnt, with_vectors
from onnx import TensorProto as T
from onnx import helper as h
from typer.testing import CliRunner

from mirage.allocation.graph import Graph
from mirage.allocation.inference.costs.examples import write_examples
from mirage.allocation.inference.serving.networks import LoadedNetwork
from mirage.bootstrap.predictors import named_predictor
from mirage.cli.main import app
from mirage.config.loading import load_config
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.modelgraph.checking import AGENT, PREDICTOR, check_graph, refuse_external
from mirage.modelgraph.reading import BadGraph
from mirage.plugin import write_artifact
from mirage.predictors.model_registry import ModelRegistry
from mirage.predictors.model_trial import try_model
from mirage.predictors.onnx_predictor import OnnxModel
from mirage.predictors.tree_graphs import Tree, trees_graph
from mirage.store.opening import open_store

N, tensor, v = h.make_node, h.make_tensor, h.make_tensor_value_info


def model(nodes, init=(), *, sparse=(), opset=17) -> onnx.ModelProto:
    g = h.make_graph(nodes, "g", [v("x", T.FLOAT, [None, 3])], [v("y", T.FLOAT, None)], list(init))
    g.sparse_initializer.extend(sparse)
    return h.make_model(g, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


def graph(nodes, init=(), **more) -> bytes:
    return model(nodes, init, **more).SerializeToString()


def elsewhere(name: str, location: str, size: int) -> onnx.TensorProto:
    found = T(name=name, data_type=T.UINT8, data_location=T.EXTERNAL, dims=[size])
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        found.external_data.add(key=key, value=value)
    return found


def external(location: str, size: int) -> bytes:
    """Adds the bytes of a file to its answer."""
    nodes = [N("Cast", ["w"], ["b"], to=T.FLOAT), N("ReduceSum", ["x", "axis"], ["s"])]
    nodes += [N("Mul", ["s", "zero"], ["z"]), N("Add", ["z", "b"], ["y"])]
    constants = [tensor("axis", T.INT64, [1], [1]), tensor("zero", T.FLOAT, [1], [0.0])]
    return graph(nodes, [elsewhere("w", location, size), *constants])


def inner(location: str) -> bytes:
    """The same within a graph within an operator."""
    body = h.make_graph([N("Cast", ["w"], ["b"], to=T.FLOAT)], "b", [], [v("b", T.FLOAT, None)])
    body.initializer.append(elsewhere("w", location, 8))
    node = N("If", ["c"], ["b"], then_branch=body, else_branch=body)
    return graph([node, N("Add", ["x", "b"], ["y"])], [tensor("c", T.BOOL, [], [True])])


def function(location: str) -> bytes:
    found = model([N("Own", ["x"], ["y"], domain="own")])
    made = h.make_function(
        "own", "Own", ["a"], ["o"], [N("Constant", [], ["o"], value=elsewhere("w", location, 8))],
        [h.make_opsetid("", 17)],
    )  # fmt: skip
    found.functions.append(made)
    found.opset_import.append(h.make_opsetid("own", 1))
    return found.SerializeToString()


def training(location: str) -> bytes:
    found = model([N("Identity", ["x"], ["y"])])
    found.training_info.add().algorithm.initializer.append(elsewhere("w", location, 8))
    return found.SerializeToString()


def sparse(location: str) -> bytes:
    values = onnx.SparseTensorProto(
        values=elsewhere("w", location, 8), indices=tensor("i", T.INT64, [1], [0]), dims=[8]
    )
    return graph([N("Identity", ["x"], ["y"])], sparse=[values])


def attribute(location: str) -> bytes:
    return graph([N("Constant", [], ["y"], value=elsewhere("w", location, 8))])


EXTERNAL = [lambda where: external(where, 8), inner, function, training, sparse, attribute]
LOOP = h.make_graph(
    [N("Identity", ["c"], ["d"]), N("Identity", ["a"], ["e"])],
    "b",
    [v("i", T.INT64, []), v("c", T.BOOL, []), v("a", T.FLOAT, None)],
    [v("d", T.BOOL, []), v("e", T.FLOAT, None)],
)
ENDLESS = graph(
    [N("Loop", ["n", "go", "x"], ["y"], body=LOOP)],
    [tensor("n", T.INT64, [], [2**62]), tensor("go", T.BOOL, [], [True])],
)
HUGE = graph(
    [N("ConstantOfShape", ["n"], ["z"]), N("ReduceSum", ["z"], ["s"], keepdims=0), N("Add", ["x", "s"], ["y"])],
    [tensor("n", T.INT64, [1], [600_000_000])],
)
TALL = T(name="w", data_type=T.FLOAT, dims=[2**40], raw_data=b"1234")
BAD = {
    "endless": ENDLESS,
    "huge": HUGE,
    "tall": graph([N("Add", ["x", "w"], ["y"])], [TALL]),
    "negative": graph([N("Add", ["x", "w"], ["y"])], [T(name="w", data_type=T.FLOAT, dims=[-1])]),
    "wrapped": graph([N("Add", ["x", "w"], ["y"])], [T(name="w", data_type=T.FLOAT, dims=[2**62, 4])]),
    "expand": graph([N("Expand", ["x", "n"], ["y"])], [tensor("n", T.INT64, [1], [2**40])]),
    "tile": graph([N("Tile", ["x", "n"], ["y"])], [tensor("n", T.INT64, [2], [2**30, 2**30])]),
    "range": graph([N("Range", ["a", "b", "c"], ["y"])]),
    "text": graph([N("Constant", [], ["y"], value=tensor("t", T.STRING, [1], [b"x"]))]),
    "cast": graph([N("Cast", ["x"], ["y"], to=T.STRING)]),
    "domain": graph([N("Add", ["x", "x"], ["y"], domain="com.microsoft")]),
    "custom": graph([N("Anything", ["x"], ["y"])]),
    "opset": graph([N("Relu", ["x"], ["y"])], opset=99),
    "many": graph([N("Relu", ["x"], [f"y{place}"]) for place in range(20_001)]),
    "none": b"",
    "two": graph([N("Relu", ["x"], ["y"])]) + graph([N("Relu", ["x"], ["y"])]),
    "garbage": b"\xff" * 100,
}


@pytest.mark.parametrize("made", EXTERNAL, ids=range(len(EXTERNAL)))
@pytest.mark.parametrize("location", ["secret", "/etc/hostname"])
def test_no_graph_reads_another_file(made, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_bytes(b"SECRETKEY")
    content = made(location)
    with pytest.raises(ArtifactMismatch, match="must not be run"):
        OnnxModel(content, Path("x"), 3, 8)
    with pytest.raises(ArtifactMismatch, match="must not be run"):
        Graph(content, Path("x"))
    file = tmp_path / "served.onnx"
    file.write_bytes(content)
    with pytest.raises(ArtifactMismatch, match="another file"):
        LoadedNetwork(str(file), 1, "cpu", {})


@pytest.mark.parametrize("name", BAD)
def test_a_graph_that_blocks_or_fills_a_daemon_is_not_loaded(name: str) -> None:
    began = time.process_time()
    with pytest.raises(ArtifactMismatch, match="must not be run"):
        OnnxModel(BAD[name], Path("x"), 3, 3)
    assert time.process_time() - began < 20, "rejected by what it says, not by running it"


def test_a_model_is_tried_within_bounds_before_it_is_promoted_or_loaded(tmp_path: Path) -> None:
    """Known operators alone: the product of two constants of 160 kB has 6.4 GB."""
    table = with_vectors(learnable(0, 10), USUAL)
    sides = [
        tensor(name, T.FLOAT, shape, [1.0] * 40_000) for name, shape in (("a", [40_000, 1]), ("b", [1, 40_000]))
    ]
    nodes = [N("MatMul", ["a", "b"], ["p"]), N("ReduceSum", ["p"], ["s"], keepdims=0), N("Add", ["x", "s"], ["y"])]
    bomb = write_artifact(tmp_path / "bomb", replace(learnt(), model=graph(nodes, sides)), table)
    check_graph(graph(nodes, sides), PREDICTOR, 3)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArtifactMismatch, match=r"model\.onnx"):
        try_model(bomb)
    shelf = tmp_path / "models"
    assert (
        CliRunner().invoke(app, ["models", "promote", str(bomb), "--models", str(shelf), "--force"]).exit_code == 1
    )
    assert not shelf.exists()
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\n')
    with pytest.raises(ConfigError, match=r"model\.onnx"):
        named_predictor(f"made-up:{bomb}", load_config(file).config, None)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began < 500_000
    try_model(write_artifact(tmp_path / "good", learnt(), table))


def test_an_agent_has_no_control_flow_either() -> None:
    for name in ("endless", "tall", "domain", "custom", "garbage"):
        with pytest.raises(BadGraph):
            check_graph(BAD[name], AGENT)


def grown(**changed: list[int]) -> bytes:
    """One split and two leaves, with some of its arrays changed."""
    split = Tree(
        np.array([1, -1, -1]), np.zeros(3, np.float32), np.array([1, 0, 0]), np.array([2, 0, 0]),
        np.array([[0], [1], [2]], np.float32),
    )  # fmt: skip
    found = onnx.load_from_string(trees_graph([split], 3, np.zeros(1, np.float32), compare="<"))
    for each in found.graph.node[0].attribute:
        if each.name in changed:
            del each.ints[:]
            each.ints.extend(changed[each.name])
    return found.SerializeToString()


def test_trees_that_are_trees_pass() -> None:
    check_graph(grown(), PREDICTOR, 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes_featureids": [3, 0, 0]},
        {"nodes_featureids": [-1, 0, 0]},
        {"nodes_featureids": [2**40, 0, 0]},
        {"nodes_truenodeids": [0, 0, 0]},
        {"nodes_falsenodeids": [3, 0, 0]},
        {"nodes_falsenodeids": [-1, 0, 0]},
        {"nodes_treeids": [0, 0]},
        {"nodes_treeids": [0, 0, 7]},
        {"nodes_nodeids": [0, 1, 1]},
        {"target_ids": [0, 1]},
        {"target_nodeids": [1, 9]},
        {"target_nodeids": [1, 0]},
        {"target_treeids": [0, 1]},
    ],
    ids=str,
)
def test_trees_stay_within_their_arrays(changed: dict[str, list[int]]) -> None:
    with pytest.raises(BadGraph):
        check_graph(grown(**changed), PREDICTOR, 3)


def test_networks_that_users_serve_may_be_any(tmp_path: Path) -> None:
    for path in write_examples(tmp_path):
        refuse_external(path.read_bytes())
    refuse_external(ENDLESS)
    with pytest.raises(BadGraph):
        refuse_external(b"")


def test_trial_imports_nothing_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may promote a model in a directory where others write, such as ``/tmp``."""
    table = with_vectors(learnable(0, 10), USUAL)
    good = write_artifact(tmp_path / "good", learnt(), table)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name in ("importlib", "mirage", "numpy"):
        text = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nraise SystemExit(0)\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    try_model(good)
    assert not (tmp_path / "sprung").exists()


def test_promotion_for_a_configuration_is_kept_where_its_daemon_looks(tmp_path: Path) -> None:
    good = write_artifact(tmp_path / "good", learnt(), with_vectors(learnable(0, 10), USUAL))
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\n')
    result = CliRunner().invoke(app, ["models", "promote", str(good), "--config", str(file), "--force"])
    assert result.exit_code == 0, result.output
    assert [each.current for each in ModelRegistry(tmp_path / "state" / "models").versions()] == [True]
    store = open_store(f"sqlite:///{tmp_path}/state/mirage.db")
    store.cluster.settle("elsewhere")
    store.close()
    other = write_artifact(
        tmp_path / "other", replace(learnt(), seeds=(9,)), with_vectors(learnable(0, 10), USUAL)
    )
    refused = CliRunner().invoke(app, ["models", "promote", str(other), "--config", str(file)])
    assert (refused.exit_code, "elsewhere" in str(refused.exception)) == (1, True)
    assert len(ModelRegistry(tmp_path / "state" / "models").versions()) == 1
