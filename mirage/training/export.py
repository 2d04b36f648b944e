"""Export networks to ONNX, and verify that the export returns the same."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from mirage.onnximport import onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

OPSET = 17
TOLERANCE = 1e-4
"""Tolerance, relative to the greater of 1 and the output."""


def exported(
    network: nn.Module, inputs: dict[str, Tensor], outputs: Sequence[str], axes: Mapping[str, dict[int, str]]
) -> bytes:
    """A network as ONNX; ``axes``: axes of open length of each input and output.

    Raises ``RuntimeError`` where the output of the export differs from that of the network.
    """
    written = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing needs no further package; it warns that there is a newer one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            tuple(inputs.values()),
            written,  # type: ignore[arg-type]  # declared too narrowly: files are taken
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: axes[name] for name in (*inputs, *outputs)},
        )
    longer = {name: _longer(value, axes[name]) for name, value in inputs.items()}
    with torch.no_grad():
        wanted = network(*longer.values())
    _check(written.getvalue(), longer, wanted if isinstance(wanted, tuple) else (wanted,))
    return written.getvalue()


def _longer(value: Tensor, axes: Mapping[int, str]) -> Tensor:
    """Inputs of another size than those of the export."""
    for axis in axes:
        value = torch.cat([value, value], dim=axis)
    return value


def _check(model: bytes, inputs: dict[str, Tensor], wanted: Sequence[Tensor]) -> None:
    session = onnx_runtime().InferenceSession(model, providers=["CPUExecutionProvider"])
    read = {one.name for one in session.get_inputs()}
    found = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in read})
    for answer, right in zip(found, wanted, strict=True):
        worst = float(np.max(np.abs(answer - right.numpy()) / np.maximum(1, np.abs(right.numpy()))))
        if not worst <= TOLERANCE:
            raise RuntimeError(f"the exported network differs from the trained one by {worst:.2g}")
