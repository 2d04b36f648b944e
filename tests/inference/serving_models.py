"""Networks so small that their answers can be worked out manually."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path


def write_scale(path: Path, factor: float = 2.0, width: int = 4) -> Path:
    """``y = factor * x``, x: FP32 [n, width], any n."""
    return _write(
        path,
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])],
        width,
    )


def write_layers(path: Path, width: int = 64, layers: int = 4) -> Path:
    """Matrix products, all by 1 / width on ones: ``y = x`` where all of x is equal; work for a unit."""
    nodes, weights = [], []
    for layer in range(layers):
        before = "x" if layer == 0 else f"h{layer}"
        after = "y" if layer == layers - 1 else f"h{layer + 1}"
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [after]))
        values = [1.0 / width] * (width * width)
        weights.append(helper.make_tensor(f"w{layer}", TensorProto.FLOAT, [width, width], values))
    return _write(path, nodes, weights, width)


def write_wide(path: Path, width: int = 4, out: int = 4096) -> Path:
    """Each row of the answer has the sum of x's row ``out`` times."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [width, out], [1.0] * (width * out))
    return _write(path, [node], [weight], width, out)


def _write(path: Path, nodes: list, weights: list, width: int, out: int = 0) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", out or width])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path
