"""Decide whether a graph may run: known operators of known versions, no control flow, no other file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.modelgraph.reading import read_graph
from mirage.modelgraph.trees import check_trees
from mirage.modelgraph.wire import VARINT, BadGraph

if TYPE_CHECKING:
    from mirage.modelgraph.reading import Contents
    from mirage.modelgraph.wire import Field

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
