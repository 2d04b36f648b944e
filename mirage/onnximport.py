"""onnxruntime without its telemetry; import it from here alone.

From 1.32 on it otherwise sends data about its use to its maker, and reads ``/tmp/.ses`` as it is imported: a FIFO
of that name, which every user of the machine can make, would block it indefinitely.
"""

from __future__ import annotations

import os
from typing import Any

from mirage.domain.errors import MissingExtra


def onnx_runtime(feature: str = "a trained model") -> Any:
    """The module. Raises ``MissingExtra``, which names ``feature``, where it is not installed."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(feature, "onnx") from error
    return onnxruntime
