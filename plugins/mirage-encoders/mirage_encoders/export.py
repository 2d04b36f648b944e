"""Export networks to ONNX, and verify that the export returns the same."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.plugin import onnx_runtime

if TYPE_CHECKING:
    from torch import nn

Float32 = NDArray[np.float32]

OPSET = 17
TOLERANCE = 1e-5
"""Tolerance, relative to the greater of 1 and the score."""


def exported(network: nn.Module, sample: Float32) -> bytes:
    """The network as ONNX: ``features`` (N, F) to ``scores`` (N, 2), both float32.

    Raises ``RuntimeError`` where the export gives other results on ``sample``, shape (N, F).
    """
    network = network.cpu().eval()
    vectors = torch.from_numpy(sample)
    written = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing needs no further package; it warns that there is a newer one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (vectors[:2],),
            written,  # type: ignore[arg-type]  # declared too narrowly: files are taken
            dynamo=False,
            opset_version=OPSET,
            input_names=["features"],
            output_names=["scores"],
            dynamic_axes={"features": {0: "batch"}, "scores": {0: "batch"}},
        )
    with torch.no_grad():
        wanted = network(vectors).numpy()
    found = _answers(written.getvalue(), sample)
    worst = float(np.max(np.abs(found - wanted) / np.maximum(1, np.abs(wanted))))
    if not worst <= TOLERANCE:
        raise RuntimeError(
            f"internal error (bug in Mirage): the exported network differs from the trained one by {worst:.2g}"
        )
    return written.getvalue()


def _answers(model: bytes, sample: Float32) -> Float32:
    session: Any = onnx_runtime().InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"features": sample})[0])
