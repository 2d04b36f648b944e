"""TreeEnsembleRegressor of ``ai.onnx.ml``: with invalid arrays a runtime would read past inputs, or loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.modelgraph.reading import count_of_floats, integers_of
from mirage.modelgraph.wire import BYTES, VARINT, BadGraph, signed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.modelgraph.reading import Node

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
