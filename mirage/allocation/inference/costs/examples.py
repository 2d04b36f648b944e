"""Create small ONNX networks with random weights, to try the profiler and the gateway."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from pathlib import Path

OPSET = 17
IR = 9
"""ONNX version that every supported ONNX Runtime can read."""


class _Graph:
    """A network under construction: nodes in sequence, weights drawn on request."""

    def __init__(self, name: str, seed: int) -> None:
        self._onnx = _onnx()
        self._name = name
        self._draw = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        out = f"{kind.lower()}{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def weight(self, *shape: int) -> str:
        """Weights drawn so that activations keep their scale."""
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:] if len(shape) > 2 else shape[:1]))))
        return self.constant((self._draw.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, values: np.ndarray) -> str:
        """Add a constant tensor."""
        name = f"w{len(self._weights)}"
        self._weights.append(self._onnx.numpy_helper.from_array(values, name))
        return name

    def write(self, path: Path, given: tuple[int, ...], answer: str, size: int) -> Path:
        """Write it to a file. The first size of input and output, the batch, is open."""
        helper, real = self._onnx.helper, self._onnx.TensorProto.FLOAT
        self._nodes.append(helper.make_node("Identity", [answer], ["y"]))
        x = helper.make_tensor_value_info("x", real, ["batch", *given])
        y = helper.make_tensor_value_info("y", real, ["batch", *([None] * (size - 1))])
        graph = helper.make_graph(self._nodes, self._name, [x], [y], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        self._onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
        return path


def write_examples(folder: Path) -> list[Path]:
    """Write ``convnet.onnx``, ``mlp.onnx``, ``transformer.onnx``; input ``x``, output ``y``, of any batch."""
    folder.mkdir(parents=True, exist_ok=True)
    return [make(folder / f"{name}.onnx") for name, make in _MAKERS.items()]


def _convnet(path: Path) -> Path:
    """Three convolutions over 32 x 32 pixels, ten classes."""
    graph = _Graph("convnet", 1)
    last = "x"
    for inputs, outputs in pairwise((3, 16, 32, 64)):
        filters = graph.weight(outputs, inputs, 3, 3)
        last = graph.node("Relu", graph.node("Conv", last, filters, pads=[1, 1, 1, 1], strides=[2, 2]))
    flat = graph.node("Flatten", graph.node("GlobalAveragePool", last))
    return graph.write(path, (3, 32, 32), graph.node("MatMul", flat, graph.weight(64, 10)), 2)


def _mlp(path: Path) -> Path:
    """Three dense layers of 256."""
    graph = _Graph("mlp", 2)
    last = "x"
    for inputs, outputs in pairwise((64, 256, 256, 1)):
        last = graph.node("Relu", graph.node("MatMul", last, graph.weight(inputs, outputs)))
    return graph.write(path, (64,), last, 2)


def _transformer(path: Path) -> Path:
    """One block of attention (one head) and two dense layers over 32 tokens of 64."""
    tokens, width = 32, 64
    graph = _Graph("transformer", 3)
    query, key, value = (graph.node("MatMul", "x", graph.weight(width, width)) for _ in range(3))
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 1]))
    scaled = graph.node("Mul", scores, graph.constant(np.array(width**-0.5, dtype=np.float32)))
    mixed = graph.node("MatMul", graph.node("Softmax", scaled, axis=-1), value)
    attended = graph.node("Add", "x", graph.node("MatMul", mixed, graph.weight(width, width)))
    wide = graph.node("Relu", graph.node("MatMul", attended, graph.weight(width, 4 * width)))
    answer = graph.node("Add", attended, graph.node("MatMul", wide, graph.weight(4 * width, width)))
    return graph.write(path, (tokens, width), answer, 3)


_MAKERS = {"convnet": _convnet, "mlp": _mlp, "transformer": _transformer}


def _onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.numpy_helper
    except ImportError as error:
        raise MissingExtra("writing example networks", "train") from error
    return onnx
