"""The cost model itself, where it is installed (extra ``costmodel``): it gives what the table edge holds."""

from __future__ import annotations

import pytest

from mirage.allocation.inference.costs.arrays import LayerShape, array, network
from mirage.allocation.inference.costs.tables import cost_table

pytest.importorskip("zigzag", reason="the extra costmodel is not installed")

from mirage.allocation.inference.costs.costmodel import CostModel

# A pointwise, a depthwise, a dense layer and a product of activations: milliseconds each.
SOME = [
    ("mobilenetv2", "block17.project"),
    ("mobilenetv2", "block17.depthwise"),
    ("dlrm", "bottom2"),
    ("bert-base", "layer1.scores"),
]


@pytest.mark.parametrize(("name", "layer"), SOME)
@pytest.mark.parametrize("kind", ["eyeriss", "simba"])
def test_layers_cost_what_the_table_says(name: str, layer: str, kind: str) -> None:
    table = cost_table("edge")
    model = table.models.index(name)
    row = table.pieces.index(layer, table.first[model])
    column = table.kinds.index(kind)
    shape = next(one.shape for one in network(name).layers if one.name == layer)
    cost = CostModel(array(kind)).cost(shape)
    assert cost.cycles == pytest.approx(table.seconds[row, column] * 1e9)
    assert cost.compute_cycles == pytest.approx(table.compute_seconds[row, column] * 1e9)
    assert cost.picojoules == pytest.approx(table.joules[row, column] * 1e12)
    assert cost.dram_bytes == pytest.approx(table.dram_bytes[row, column])


def test_near_what_timeloops_exercises_publish() -> None:
    """86,016 and 225,792 cycles for this layer, without waits for memory."""
    shape = LayerShape(1, 32, 3, 112, 112, 3, 3, stride=2)
    assert 1 <= CostModel(array("eyeriss")).cost(shape).cycles / 86_016 < 1.25
    assert 1 <= CostModel(array("simba")).cost(shape).cycles / 225_792 < 1.25
