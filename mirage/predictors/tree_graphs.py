"""Ensembles of decision trees as ONNX graphs. Needs the ``onnx`` package; for trainers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

OPSET, TREES_OPSET, IR_VERSION = 17, 3, 9
"""Old enough for any onnxruntime that runs on Python 3.11."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One binary tree as arrays over its nodes; node 0 is the root."""

    feature: Int64
    """Which feature a node looks at; -1: it is a leaf."""
    threshold: Float32
    left: Int64
    """Where to go if the feature is less than (or equal to, see ``trees_graph``) the threshold."""
    right: Int64
    value: Float32
    """Shape (nodes, K): what a leaf adds to the K outputs from ``first`` on; 0 adds nothing."""
    first: int = 0
    """To which output ``value``'s first column belongs."""


def floor32(threshold: Float64) -> Float32:
    """The greatest float32 that is not above each threshold: ``x <= t`` is then the same for every float32 x."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def trees_graph(
    trees: Sequence[Tree],
    features: int,
    base: Float32,
    *,
    compare: Literal["<", "<="],
    then: Literal["", "expm1", "cumsum"] = "",
) -> bytes:
    """The sum of all trees and ``base`` (shape (outputs,)), as a graph from (N, features) to (N, outputs).

    ``then``: what is done with the sum: exp(y) - 1, or running sums over the outputs. Raises ``MissingExtra``
    without ``onnx``.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ModuleNotFoundError:
        raise MissingExtra("writing a model", "train") from None
    outputs = len(base)
    nodes = [
        helper.make_node(
            "TreeEnsembleRegressor",
            ["features"],
            ["grown"],
            domain="ai.onnx.ml",
            n_targets=outputs,
            aggregate_function="SUM",
            post_transform="NONE",
            **_attributes(trees, "BRANCH_LT" if compare == "<" else "BRANCH_LEQ"),
        ),
        # Not as the ensemble's own base_values: onnxruntime forgets those of an output that no leaf adds to.
        helper.make_node("Add", ["grown", "base"], ["sum" if then else "answer"]),
    ]
    constants = [helper.make_tensor("base", TensorProto.FLOAT, [outputs], base.astype(np.float32).tolist())]
    if then == "expm1":
        constants += [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])]
        nodes += [
            helper.make_node("Exp", ["sum"], ["power"]),
            helper.make_node("Sub", ["power", "one"], ["answer"]),
        ]
    elif then == "cumsum":
        constants += [helper.make_tensor("axis", TensorProto.INT64, [], [1])]
        nodes += [helper.make_node("CumSum", ["sum", "axis"], ["answer"])]
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["N", outputs])],
        constants,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", TREES_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="mirage")
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _attributes(trees: Sequence[Tree], branch: str) -> dict[str, Any]:
    """Of ONNX's TreeEnsembleRegressor (ai.onnx.ml, version 3)."""
    found: dict[str, list[Any]] = {name: [] for name in (*_OF_NODES, *_OF_TARGETS)}
    for number, tree in enumerate(trees):
        leaf = tree.feature < 0
        count = len(leaf)
        found["nodes_treeids"] += [number] * count
        found["nodes_nodeids"] += range(count)
        found["nodes_featureids"] += np.where(leaf, 0, tree.feature).tolist()
        found["nodes_values"] += np.where(leaf, 0, tree.threshold).tolist()
        found["nodes_modes"] += np.where(leaf, "LEAF", branch).tolist()
        found["nodes_truenodeids"] += np.where(leaf, 0, tree.left).tolist()
        found["nodes_falsenodeids"] += np.where(leaf, 0, tree.right).tolist()
        node, column = _entries(tree.value, leaf)
        found["target_treeids"] += [number] * len(node)
        found["target_nodeids"] += node.tolist()
        found["target_ids"] += (column + tree.first).tolist()
        found["target_weights"] += tree.value[node, column].tolist()
    return found


def _entries(value: Float32, leaf: NDArray[np.bool_]) -> tuple[Int64, Int64]:
    """Nodes and columns of what the leaves add; each leaf must be there, if only with a 0."""
    wanted = (value != 0) & leaf[:, None]
    wanted[leaf & ~wanted.any(axis=1), 0] = True
    node, column = np.nonzero(wanted)
    return node, column


_OF_NODES = (
    "nodes_treeids",
    "nodes_nodeids",
    "nodes_featureids",
    "nodes_values",
    "nodes_modes",
    "nodes_truenodeids",
    "nodes_falsenodeids",
)
_OF_TARGETS = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
