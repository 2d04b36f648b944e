"""onnxruntime without its telemetry; import it from here alone.

From 1.32 on it otherwise sends data about its use to its maker, and reads ``/tmp/.ses`` as it is imported: a FIFO
of that name, which every user of the machine can make, would block it indefinitely.
"""

from __future__ import annotations

import os
from typing import Any


def onnx_runtime() -> Any:
    """The module. Raises ``ImportError`` where it is not installed."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime
