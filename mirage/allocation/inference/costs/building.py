"""Build cost tables from lists of layers and arrays, with the cost model.

The cost of a layer takes seconds to compute, that of a network minutes. Each shape is evaluated once for each
array and stored immediately, so that an interrupted run continues where it stopped and networks share shapes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.costs.costmodel import TOOL, VERSION, CostModel, LayerCost
from mirage.allocation.inference.costs.tables import CostManifest, UnitSource
from mirage.documentreading import parse_json, reader_of
from mirage.domain.errors import MirageError
from mirage.domain.inference import CostTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mirage.allocation.inference.costs.arrays import Array, LayerShape, Network


_COST = reader_of(LayerCost)


class DamagedCosts(MirageError):
    """A file of stored costs with invalid content; the text names the place."""


class KeptCosts:
    """Stored costs of shapes on one array, in a file of JSON lines."""

    def __init__(self, folder: Path, array: Array) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{array.kind}-{TOOL}-{VERSION}-{array.digest[:16]}.jsonl"
        self._costs: dict[tuple[int, ...], LayerCost] = {}
        if self._path.exists():
            self._read()

    def __contains__(self, shape: LayerShape) -> bool:
        return astuple(shape) in self._costs

    def __getitem__(self, shape: LayerShape) -> LayerCost:
        return self._costs[astuple(shape)]

    def _read(self) -> None:
        for number, line in enumerate(self._path.read_bytes().splitlines(), 1):
            try:
                kept = parse_json(line)
                self._costs[tuple(kept["shape"])] = _COST.validate_python(kept["cost"])
            except (ValueError, TypeError, KeyError) as error:
                where = f"{self._path}, line {number}"
                raise DamagedCosts(
                    f"{where}: invalid stored cost ({error}); delete the line, it is computed again"
                ) from error

    def keep(self, shape: LayerShape, cost: LayerCost) -> None:
        """Store a cost immediately, so that it is not lost with the process."""
        self._costs[astuple(shape)] = cost
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"shape": astuple(shape), "cost": asdict(cost)}) + "\n")


def build(
    networks: Sequence[Network],
    arrays: Sequence[Array],
    kept_in: Path,
    progress: Callable[[str], None],
) -> tuple[CostTable, CostManifest]:
    """The table of these networks on these arrays, one segment per layer; ``progress``: called per new shape."""
    costs = {array.kind: _evaluate(networks, array, KeptCosts(kept_in, array), progress) for array in arrays}
    layers = [layer for network in networks for layer in network.layers]

    def column(read: Callable[[LayerCost, Array], float]) -> np.ndarray:
        return np.array([[read(costs[array.kind][layer.shape], array) for array in arrays] for layer in layers])

    table = CostTable(
        models=tuple(network.name for network in networks),
        first=np.cumsum([0, *(len(network.layers) for network in networks)]).astype(np.int32),
        pieces=tuple(layer.name for layer in layers),
        kinds=tuple(array.kind for array in arrays),
        seconds=column(lambda cost, array: cost.cycles / array.clock_hz),
        compute_seconds=column(lambda cost, array: cost.compute_cycles / array.clock_hz),
        joules=column(lambda cost, _: cost.picojoules * 1e-12),
        dram_bytes=column(lambda cost, _: cost.dram_bytes),
    )
    return table, _manifest(networks, arrays)


def _evaluate(
    networks: Sequence[Network], array: Array, kept: KeptCosts, progress: Callable[[str], None]
) -> KeptCosts:
    shapes = list(dict.fromkeys(layer.shape for network in networks for layer in network.layers))
    missing = [shape for shape in shapes if shape not in kept]
    if not missing:
        return kept
    model = CostModel(array)
    for number, shape in enumerate(missing, 1):
        kept.keep(shape, model.cost(shape))
        progress(f"{array.kind}: {number} of {len(missing)} shapes")
    return kept


def _manifest(networks: Sequence[Network], arrays: Sequence[Array]) -> CostManifest:
    return CostManifest(
        made_by=f"{TOOL} {VERSION}",
        models={network.name: network.title for network in networks},
        units={
            array.kind: UnitSource(
                source=f"analytical model {TOOL} {VERSION}, smallest energy x delay",
                clock_hz=array.clock_hz,
                hardware=array.hardware,
                mapping=array.mapping,
            )
            for array in arrays
        },
    )
