"""Decide whether a graph may run: one of Mirage's exporters, or a network that a user brings.

A graph of ours has known operators of known versions, no control flow and no other file. Its trees
(TreeEnsembleRegressor of ``ai.onnx.ml``) are checked as well: with invalid arrays a runtime would read past
inputs, or loop. A user's network for an allocation may have any operators, but all data in one file: a tensor
may name another file for its data, and a runtime would read any such file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.atomic_file import read_regular
from mirage.domain.errors import ArtifactMismatch
from mirage.modelgraph.reading import (
    BYTES,
    VARINT,
    BadGraph,
    count_of_floats,
    fields,
    integers_of,
    read_graph,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.modelgraph.reading import Contents, Field, Node

LARGEST_NETWORK = 2 << 30
"""Bytes; no ONNX file can be larger."""

_DEEPEST = 64
_INNER: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Messages that contain tensors, by the field numbers of onnx.proto."""
_EXTERNAL_DATA, _LOCATION = 13, 14


def read_network(path: Path | str) -> bytes:
    """Content of the file, unless a tensor refers to another file. Raises ``ArtifactMismatch`` and ``OSError``."""
    content = read_regular(path, LARGEST_NETWORK)
    try:
        refuse_external(content)
    except BadGraph as error:
        told = f"is not loaded: {error}; write one ONNX file with all tensors"
        raise ArtifactMismatch(str(path), told) from None
    return content


def refuse_external(content: bytes) -> None:
    """Raise ``BadGraph`` where a tensor refers to another file, or the file is no ONNX graph."""
    waiting = [("model", memoryview(content), 0)]
    graphs = 0
    while waiting:
        kind, message, depth = waiting.pop()
        if depth > _DEEPEST:
            raise BadGraph("nested too deeply")
        graphs += kind == "graph"
        inner = _INNER[kind]
        for each in fields(message, lists=kind == "attribute"):
            if kind == "tensor" and (each.number == _EXTERNAL_DATA or (each.number == _LOCATION and each.value)):
                raise BadGraph("a tensor refers to another file")
            if each.number in inner and each.kind == BYTES:
                waiting.append((inner[each.number], each.content, depth + 1))
    if not graphs:
        raise BadGraph("contains no graph")


if TYPE_CHECKING:
    Int64 = NDArray[np.int64]

_NODES = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
_TARGETS = ("treeids", "nodeids", "ids")
_TEXTS = {"aggregate_function", "post_transform"}
_KNOWN = {f"nodes_{name}" for name in (*_NODES, "modes", "values")}
_KNOWN |= {f"target_{name}" for name in (*_TARGETS, "weights")}
_KNOWN |= _TEXTS | {"n_targets"}
_LEAF, _BRANCHES = b"LEAF", {b"BRANCH_LT", b"BRANCH_LEQ"}
_MOST_TARGETS = 4_096


def check_trees(node: Node, features: int) -> None:
    """Raise ``BadGraph`` where a tree reads a feature that does not exist, or a path does not lead to a leaf."""
    if unknown := node.attributes.keys() - _KNOWN:
        raise BadGraph(f"{node.operator} has the attribute {min(unknown)!r}")
    nodes = _arrays(node, "nodes_", _NODES, "values")
    leaf = _leaves(node, len(nodes["treeids"]))
    sizes = _sizes(nodes["treeids"], nodes["nodeids"])
    size = np.repeat(sizes, sizes)
    _within(nodes["featureids"], 0, features, "a tree reads a feature that does not exist")
    for branch in ("truenodeids", "falsenodeids"):
        child, own, most = nodes[branch][~leaf], nodes["nodeids"][~leaf], size[~leaf]
        # Later than its parent: a path that goes back would never end.
        if not ((child > own) & (child < most)).all():
            raise BadGraph("a path in a tree leads to no leaf")
    _check_targets(node, leaf, sizes)


def _check_targets(node: Node, leaf: NDArray[np.bool_], sizes: Int64) -> None:
    targets = _arrays(node, "target_", _TARGETS, "weights")
    count = [signed(each.value) for each in node.attributes.get("n_targets", ()) if each.kind == VARINT]
    if len(count) != 1 or not 1 <= count[0] <= _MOST_TARGETS:
        raise BadGraph(f"trees have at most {_MOST_TARGETS:,} outputs")
    _within(targets["ids"], 0, count[0], "a tree adds to an output that does not exist")
    _within(targets["treeids"], 0, len(sizes), "an output names a tree that does not exist")
    _within(targets["nodeids"], 0, sizes[targets["treeids"]], "an output names a node that does not exist")
    if not leaf[(np.cumsum(sizes) - sizes)[targets["treeids"]] + targets["nodeids"]].all():
        raise BadGraph("an output names a node that is no leaf")


def _arrays(node: Node, prefix: str, names: tuple[str, ...], floats: str) -> dict[str, Int64]:
    """The integer arrays; all have one length, like the array of floats."""
    found = {name: integers_of(node.attributes.get(prefix + name, ())) for name in names}
    lengths = {len(each) for each in found.values()}
    if lengths != {count_of_floats(node.attributes.get(prefix + floats, ()))} or lengths == {0}:
        raise BadGraph("the arrays of the trees differ in length")
    return found


def _leaves(node: Node, count: int) -> NDArray[np.bool_]:
    modes = [bytes(each.content) for each in node.attributes.get("nodes_modes", ()) if each.kind == BYTES]
    if len(modes) != count or not {*modes} <= {_LEAF, *_BRANCHES}:
        raise BadGraph("a node of a tree is neither a leaf nor a comparison that Mirage writes")
    return np.array([mode == _LEAF for mode in modes])


def _sizes(trees: Int64, nodes: Int64) -> Int64:
    """Nodes of each tree; trees and nodes are numbered from 0 in their order."""
    starts = np.flatnonzero(nodes == 0)
    sizes = np.diff(np.append(starts, len(nodes)))
    numbered = len(starts) and starts[0] == 0
    if not numbered or (trees != np.repeat(np.arange(len(starts)), sizes)).any():
        raise BadGraph("trees are not numbered in their order")
    if (nodes != np.arange(len(nodes)) - np.repeat(starts, sizes)).any():
        raise BadGraph("the nodes of a tree are not numbered in their order")
    return sizes.astype(np.int64)


def _within(values: Int64, least: int, beyond: int | Int64, text: str) -> None:
    if not ((values >= least) & (values < beyond)).all():
        raise BadGraph(text)


_ML = "ai.onnx.ml"
_OPSETS = {"": range(7, 24), _ML: range(1, 5)}
_IR_VERSIONS = range(3, 13)
_TREES = "TreeEnsembleRegressor"

_SUMS = ("Add", "Clip", "Div", "Exp", "Gemm", "LayerNormalization", "MatMul", "Mul", "ReduceMean", "ReduceSum")
_SHAPES = ("Concat", "Constant", "Gather", "Identity", "Reshape", "Shape", "Slice", "Transpose", "Unsqueeze")
_NUMBERS = frozenset({1, 6, 7, 9, 11})
"""ONNX's element types float, int32, int64, bool and double."""
_CURVES = ("Relu", "Sigmoid", "Softmax", "Sub", "Tanh")


@dataclass(frozen=True, slots=True)
class Rules:
    """Content that a graph may have."""

    operators: frozenset[str]
    """Operators of ONNX's default domain."""
    like_shapes: bool = True
    """``ConstantOfShape`` only with the size of an existing tensor."""
    most_nodes: int = 20_000


PREDICTOR = Rules(frozenset({*_SUMS, *_SHAPES, *_CURVES, "Cast", "ConstantOfShape", "CumSum"}))
"""The output of Mirage's exporters for predictors; a daemon runs no other graphs."""

AGENT = Rules(
    PREDICTOR.operators | {"Cos", "Equal", "Expand", "LSTM", "Sin", "Softplus", "Squeeze", "Where"},
    like_shapes=False,
)
"""The same for agents within an allocation, which run as their owner."""


def check_graph(content: bytes, rules: Rules, features: int = 0) -> None:
    """Raise ``BadGraph`` for a graph that must not run. ``features``: columns of its input, for trees."""
    found = read_graph(content, rules.most_nodes)
    _check_versions(found)
    shapes = {name for node in found.nodes if node.operator == "Shape" for name in node.outputs}
    for node in found.nodes:
        if node.domain == _ML and node.operator == _TREES and features:
            check_trees(node, features)
        elif node.domain or node.operator not in rules.operators:
            domain = f" of the domain {node.domain[:40]!r}" if node.domain else ""
            raise BadGraph(f"has the operator {node.operator[:40]!r}{domain}, which no exporter of Mirage writes")
        elif node.operator == "ConstantOfShape" and rules.like_shapes and not shapes.issuperset(node.inputs):
            raise BadGraph("creates a tensor of a size that no other tensor has")
        elif node.operator == "Cast" and not all(_is_number(to) for to in node.attributes.get("to", ())):
            raise BadGraph("casts to a type that is no number")


def _is_number(to: Field) -> bool:
    return to.kind == VARINT and to.value in _NUMBERS


def _check_versions(found: Contents) -> None:
    if found.ir_version not in _IR_VERSIONS:
        raise BadGraph(f"has the IR version {found.ir_version}")
    for domain, version in found.opsets.items():
        if version not in _OPSETS.get(domain, ()):
            raise BadGraph(f"has version {version} of the operators of {domain[:40] or 'ONNX'}")
