"""A trained network in use: an ONNX graph on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ArtifactMismatch
from mirage.modelgraph.checking import AGENT, check_graph
from mirage.modelgraph.reading import BadGraph
from mirage.onnximport import onnx_runtime

if TYPE_CHECKING:
    from pathlib import Path

Float32 = NDArray[np.float32]


class Graph:
    """An ONNX graph on one thread."""

    def __init__(self, content: bytes, path: Path) -> None:
        """Raises ``ArtifactMismatch`` where it cannot be loaded, ``MissingExtra``."""
        try:
            check_graph(content, AGENT)
        except BadGraph as error:
            told = f"the graph must not be run: {error}; train the agents again"
            raise ArtifactMismatch(str(path), told) from None
        runtime = onnx_runtime("trained agents")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session: Any = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises many classes
            raise ArtifactMismatch(str(path), f"cannot be loaded: {error}; train the agents again") from error
        self._inputs = {one.name for one in self._session.get_inputs()}

    def run(self, **inputs: Float32) -> list[Float32]:
        """Return the outputs; inputs that it does not use are ignored. Raises ``ValueError`` if not finite."""
        outputs: list[Float32] = self._session.run(None, {k: v for k, v in inputs.items() if k in self._inputs})
        if not all(np.isfinite(output).all() for output in outputs):
            raise ValueError("the output of the agents is not finite; train them again")
        return outputs
