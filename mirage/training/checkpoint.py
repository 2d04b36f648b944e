"""What a training with torch writes: its state, so that it can be continued, and its networks as ONNX.

An export is verified: it must return the same as the network.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from mirage.atomic_file import draft_of
from mirage.domain.errors import ConfigError
from mirage.onnximport import onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from dataclasses import Field
    from pathlib import Path
    from typing import ClassVar

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


class TrainingConfig(Protocol):
    """Configuration of a training: a dataclass; all but the number of rounds must be equal to continue."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def rounds(self) -> int:
        """Number of rounds to train."""


def write_state(path: Path, course: TrainingConfig, state: dict[str, Any]) -> None:
    """Write the state, completely or not at all."""
    with draft_of(path) as draft:
        torch.save(state | {"course": _named(course)}, draft)


def read_state(path: Path, course: TrainingConfig) -> dict[str, Any]:
    """Read the state of ``write_state``. Raises ``ConfigError`` if its configuration differs, or it is invalid."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises many classes
        raise ConfigError(str(path), f"not the state of a training: {error}") from error
    if _fields_of(str(state.get("course"))) != _fields_of(_named(course)):
        raise ConfigError(
            str(path), "state of a training with another configuration; name another file or delete it"
        )
    return state


def _named(course: TrainingConfig) -> str:
    return repr(replace(course, rounds=0))


def _fields_of(text: str) -> str:
    """The text of a configuration without the names of its classes, which may change between versions."""
    return re.sub(r"\w+\(", "(", text)
