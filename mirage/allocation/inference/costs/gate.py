"""Verify the cost model: reproduce the figures that its authors publish.

ZigZag's regression test (``tests/main/test_origin/test_tpu_like.py`` at 3.8.5) states what its ResNet-18, on its
TPU-like array and mapping, must give: 1871436380.66 pJ and 3703960.5 cycles. All three files are in its package.
Energy hardly moves from version to version, cycles do: 3.9.1 gives 3865041.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from mirage.allocation.inference.costs.costmodel import VERSION, check_installed

PICOJOULES = 1871436380.656
CYCLES = 3703960.5
TOLERANCE = 1e-9
"""Relative tolerance, for the rounding of sums."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Figures of the cost model."""

    picojoules: float
    cycles: float

    @property
    def intact(self) -> bool:
        """Whether both are as published."""
        return _near(self.picojoules, PICOJOULES) and _near(self.cycles, CYCLES)

    def __str__(self) -> str:
        verdict = "as published" if self.intact else f"published: {PICOJOULES:.3f} pJ, {CYCLES} cycles"
        return f"ZigZag {VERSION}, ResNet-18: {self.picojoules:.3f} pJ, {self.cycles} cycles; {verdict}"


def check_cost_model() -> Checked:
    """Run the cost model; takes some minutes. Raises ``CostModelUnavailable``."""
    check_installed()
    from zigzag.api import get_hardware_performance_zigzag

    logging.getLogger("zigzag").setLevel(logging.ERROR)
    inputs = Path(str(resources.files("zigzag") / "inputs"))
    with TemporaryDirectory(prefix="mirage-costs-") as folder:
        picojoules, cycles, _ = get_hardware_performance_zigzag(
            str(inputs / "workload" / "resnet18.onnx"),
            str(inputs / "hardware" / "tpu_like.yaml"),
            str(inputs / "mapping" / "tpu_like.yaml"),
            dump_folder=folder,
            loma_show_progress_bar=False,
        )
    return Checked(float(picojoules), float(cycles))


def _near(found: float, published: float) -> bool:
    return abs(found - published) <= TOLERANCE * published
