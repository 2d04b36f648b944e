"""The agents as ONNX, and the proof that what is exported answers the same."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from mirage.allocation.ddl.das.artifact import ORDERING, PLACEMENT, Process
from mirage.allocation.ddl.das.loops.seeing import NODE, PAIR
from mirage.allocation.ddl.das.sight import TASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from mirage.training.das.agents import Agents

OPSET = 17
TOLERANCE = 1e-4
"""Of the greater of 1 and the answer."""


def graphs_of(agents: Agents) -> dict[str, bytes]:
    """Both agents' networks by the names of their files. Raises ``RuntimeError`` where an export differs."""
    rng = torch.Generator().manual_seed(0)
    base, task, node, pair = (
        torch.randn(shape, generator=rng)
        for shape in ((1, 7, 4), (1, 7, len(TASK)), (1, 5, len(NODE)), (1, 7, 5, len(PAIR)))
    )
    ordering = {"base": base, "task": task, "node": node, "mask": torch.ones(1, 7)}
    placement = {"task": task, "node": node, "pair": pair}
    return {
        ORDERING: _exported(agents.ordering, ordering, ("scores",)),
        PLACEMENT: _exported(agents.placement, placement, ("mean", "labels", "likeness", "patience")),
    }


def process_of(agents: Agents) -> Process:
    """The process's numbers."""
    placement = agents.placement
    with torch.no_grad():
        decay, noise = torch.sigmoid(placement.decay).item(), torch.exp(placement.noise).item()
    return Process(agents.shape.walks, decay, noise)


AXES = {
    "base": {1: "tasks"},
    "task": {1: "tasks"},
    "mask": {1: "tasks"},
    "node": {1: "nodes"},
    "pair": {1: "tasks", 2: "nodes"},
    "scores": {1: "tasks"},
    "mean": {1: "tasks", 2: "nodes"},
    "labels": {1: "tasks", 2: "nodes"},
    "likeness": {1: "tasks", 2: "nodes"},
    "patience": {1: "tasks"},
}


def _exported(network: nn.Module, inputs: dict[str, Tensor], outputs: Sequence[str]) -> bytes:
    written = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing needs no further package; it says that there is a newer one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            tuple(inputs.values()),
            written,  # type: ignore[arg-type]  # declared too narrowly: files are taken
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: AXES[name] for name in (*inputs, *outputs)},
        )
    longer = {name: _longer(name, value) for name, value in inputs.items()}
    with torch.no_grad():
        wanted = network(*longer.values())
    _check(written.getvalue(), longer, wanted if isinstance(wanted, tuple) else (wanted,))
    return written.getvalue()


def _longer(name: str, value: Tensor) -> Tensor:
    """Inputs of another size than those the export saw."""
    for axis in AXES[name]:
        value = torch.cat([value, value], dim=axis)
    return value


def _check(model: bytes, inputs: dict[str, Tensor], wanted: Sequence[Tensor]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    read = {one.name for one in session.get_inputs()}
    found = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in read})
    for answer, right in zip(found, wanted, strict=True):
        worst = float(np.max(np.abs(answer - right.numpy()) / np.maximum(1, np.abs(right.numpy()))))
        if not worst <= TOLERANCE:
            raise RuntimeError(f"the exported network differs from the trained one by {worst:.2g}")
