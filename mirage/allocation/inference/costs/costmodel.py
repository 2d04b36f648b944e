"""Cost of a layer on an array, by the analytical cost model ZigZag, and the check of its version.

ZigZag (Mei et al., IEEE TC 70(8), 2021) finds the memories that an order of a layer's loops needs, and counts the
accesses of every memory, and the stalls. Slow to import, and needed only to build tables (extra ``costmodel``).

It could search all orders of a layer's loops in time. That takes minutes per layer if it splits loops finely
enough to fill small memories; otherwise it misses the best by a factor of two. So an array's dataflow states
the inner loops; the outer loops are tried in every order.

Its latency differs between versions, so one version is pinned, and ``check_cost_model`` reproduces the figures
that its authors publish. ZigZag's regression test (``tests/main/test_origin/test_tpu_like.py`` at 3.8.5) states
what its ResNet-18, on its TPU-like array and mapping, must give: 1871436380.66 pJ and 3703960.5 cycles. All
three files are in its package. Energy hardly moves from version to version, cycles do: 3.9.1 gives 3865041.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import metadata, resources
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.costs.arrays import Array, Mapped, lay
from mirage.domain.errors import MirageError, MissingExtra

if TYPE_CHECKING:
    from mirage.allocation.inference.costs.arrays import Inner, LayerShape

Order = tuple[tuple[str, int], ...]
"""Loops and their numbers of steps, the innermost first."""


def orders(mapped: Mapped, array: Array) -> list[Order]:
    """Every order that the array's dataflows allow, each once."""
    steps = {loop: size // mapped.taken(loop) for loop, size in mapped.sizes.items()}
    found: dict[Order, None] = {}
    for dataflow in array.dataflows:
        inside, outside = _inside(dataflow, steps)
        left = [(loop, count) for loop, count in outside.items() if count > 1]
        found.update(dict.fromkeys((*inside, *order) for order in permutations(left)))
    return list(found)


def _inside(dataflow: tuple[Inner, ...], steps: dict[str, int]) -> tuple[Order, dict[str, int]]:
    """The inner loops of a dataflow, and the steps that are left for outside."""
    left = dict(steps)
    inside: list[tuple[str, int]] = []
    for inner in dataflow:
        room = inner.most
        for loop in inner.loops:
            tile = _largest_divisor(left[loop], room)
            if tile > 1:
                inside.append((loop, tile))
                left[loop], room = left[loop] // tile, room // tile
    return tuple(inside), left


def _largest_divisor(number: int, most: int) -> int:
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)


TOOL = "zigzag-dse"
VERSION = "3.8.5"
EQUATION = "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]"
BITS = {"W": 8, "I": 8, "O": 24, "O_final": 8}
LINKS = {"O": "O", "W": "I2", "I": "I1"}
TOP = "dram"
ENDLESS_BITS = 2**40
"""Part of a cycle at the port of the top memory: not counted as a wait."""


class CostModelUnavailable(MirageError):
    """The installed version of the cost model is not the pinned one; the text names it."""


class LayerNotMapped(MirageError):
    """A layer for which the cost model finds no order of loops."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Cost of one run of a layer, alone on the array."""

    cycles: float
    compute_cycles: float
    """Cycles of the same order with an infinitely fast shared memory: waits inside the array remain."""
    picojoules: float
    dram_bytes: float


def check_installed() -> None:
    """Raise ``MissingExtra`` or ``CostModelUnavailable`` unless the pinned version can be used."""
    try:
        found = metadata.version(TOOL)
    except metadata.PackageNotFoundError:
        raise MissingExtra("building cost tables", "costmodel") from None
    if found != VERSION:
        raise CostModelUnavailable(
            f"{TOOL} is {found}, tables are built with {VERSION}: pip install {TOOL}=={VERSION}"
        )


class CostModel:
    """The cost model of one array."""

    def __init__(self, array: Array) -> None:
        check_installed()
        logging.getLogger("zigzag").setLevel(logging.ERROR)
        self._array = array
        self._hardware = _accelerator(array.hardware)
        self._endless = _accelerator(array.hardware, top_bits=ENDLESS_BITS)

    def cost(self, shape: LayerShape) -> LayerCost:
        """Cost of the order of its dataflows with the smallest energy x delay. Raises ``LayerNotMapped``."""
        mapped = lay(shape, self._array)
        layer = _layer(mapped, shape.stride)
        spread = self._spread(layer)
        tried = (self._evaluate(layer, spread, order) for order in orders(mapped, self._array))
        held = (found for found in tried if found is not None)
        best = min(held, key=lambda found: float(found.energy_total * found.latency_total2), default=None)
        if best is None:
            raise LayerNotMapped(f"{TOOL} finds no memories for any order of {shape} on {self._array.kind}")
        return self._read(best)

    def _spread(self, layer: Any) -> tuple[Any, Any]:
        """The spatial mapping in the tool's form: once for energy, once for cycles; here they are the same."""
        from zigzag.stages.evaluation.cost_model_evaluation import CostModelStage
        from zigzag.stages.mapping.spatial_mapping_conversion import SpatialMappingConversionStage

        layer.spatial_mapping.initialize_oa_dims(self._hardware.operational_array.dimension_sizes)
        conversion = SpatialMappingConversionStage([CostModelStage], accelerator=self._hardware, layer=layer)
        both: tuple[Any, Any] = conversion.convert_user_spatial_mapping(layer.spatial_mapping)
        return both

    def _evaluate(self, layer: Any, spread: tuple[Any, Any], order: Order) -> Any | None:
        """``None`` where a memory is too small for the order."""
        from zigzag.cost_model.cost_model import CostModelEvaluation
        from zigzag.datatypes import LayerDim
        from zigzag.mapping.temporal_mapping import TemporalMappingType
        from zigzag.opt.loma import memory_allocator

        in_time = [(LayerDim(loop), steps) for loop, steps in order]
        uneven = TemporalMappingType.UNEVEN
        allocator = memory_allocator.MemoryAllocator(self._hardware, layer, spread[0], in_time, uneven)
        try:
            mapping = allocator.run()
        except (memory_allocator.MemoryHierarchyTooSmallException, memory_allocator.MemoryTooSmallException):
            return None
        return CostModelEvaluation(
            accelerator=self._hardware,
            layer=layer,
            spatial_mapping=spread[0],
            spatial_mapping_int=spread[1],
            temporal_mapping=mapping,
        )

    def _read(self, evaluated: Any) -> LayerCost:
        from zigzag.cost_model.cost_model import CostModelEvaluation

        unhindered = CostModelEvaluation(
            accelerator=self._endless,
            layer=evaluated.layer,
            spatial_mapping=evaluated.spatial_mapping,
            spatial_mapping_int=evaluated.spatial_mapping_int,
            temporal_mapping=evaluated.temporal_mapping,
        )
        words = sum(sum(levels[-1].data.values()) for levels in evaluated.memory_word_access.values())
        # The tool hides some transfers of the first and last tiles: no layer ends before its words are moved.
        cycles = max(float(evaluated.latency_total2), float(words))
        return LayerCost(
            cycles=cycles,
            compute_cycles=min(float(unhindered.latency_total2), cycles),
            picojoules=float(evaluated.energy_total),
            dram_bytes=float(words) * _top_bits(self._hardware) / 8,
        )


def _accelerator(hardware: str, top_bits: int | None = None) -> Any:
    import yaml
    from zigzag.parser.accelerator_factory import AcceleratorFactory
    from zigzag.parser.accelerator_validator import AcceleratorValidator

    validator = AcceleratorValidator(yaml.safe_load(hardware))
    described = validator.normalized_data
    if not validator.validate():
        raise MirageError(f"{TOOL} rejects the hardware {described.get('name')!r}: {validator.validator.errors}")
    if top_bits is not None:
        for port in described["memories"][TOP]["ports"]:
            port["bandwidth_max"] = top_bits
    made = AcceleratorFactory(described).create()
    _sort_once(made.memory_hierarchy)
    return made


def _sort_once(hierarchy: Any) -> None:
    """Sort an array's memories once: the tool sorts them at every access, a third of its time."""
    in_order = list(hierarchy.topological_sort())
    hierarchy.topological_sort = lambda: iter(in_order)


def _top_bits(accelerator: Any) -> int:
    ports = accelerator.memory_hierarchy.mem_level_list[-1].ports
    return max(int(port.bw_max) for port in ports)


def _layer(mapped: Mapped, stride: int) -> Any:
    from zigzag.parser.mapping_validator import MappingValidator
    from zigzag.parser.workload_factory import LayerNodeFactory
    from zigzag.parser.workload_validator import WorkloadValidator

    workload = WorkloadValidator([_described(mapped, stride)])
    mapping = MappingValidator([_mapping(mapped)])
    if not (workload.validate() and mapping.validate()):
        raise MirageError(f"{TOOL} rejects {workload.validator.errors or mapping.validator.errors}")
    return LayerNodeFactory(workload.normalized_data[0], mapping.normalized_data).create()


def _described(mapped: Mapped, stride: int) -> dict[str, Any]:
    return {
        "id": 0,
        "name": "layer",
        "operator_type": "Conv",
        "equation": EQUATION,
        "dimension_relations": [f"ix={stride}*ox+1*fx", f"iy={stride}*oy+1*fy"],
        "loop_dims": list(mapped.sizes),
        "loop_sizes": list(mapped.sizes.values()),
        "operand_precision": BITS,
        "operand_source": {"W": 0, "I": 0},
    }


def _mapping(mapped: Mapped) -> dict[str, Any]:
    spatial = {
        dimension: [f"{loop}, {width}" for loop, width in steps.items()] or ["C, 1"]
        for dimension, steps in mapped.unrolled.items()
    }
    return {"name": "default", "spatial_mapping": spatial, "memory_operand_links": LINKS}


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
