"""Arrays for the cost model: hardware, clock, and the mapping of layers to them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from math import ceil, prod
from typing import TYPE_CHECKING

from mirage.documenttext import parse_toml
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.allocation.inference.costs.layers import Shape


class UnknownArray(MirageError):
    """An unknown name of an array; the text lists the known names."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One dimension of an array, and the loops that may use it, in order of preference."""

    dimension: str
    size: int
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inner:
    """Inner loops of a dataflow, up to this number of steps of all of them together."""

    loops: tuple[str, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array of MACs with its memories."""

    kind: str
    hardware: str
    """The tool's description, YAML."""
    mapping: str
    """How layers are mapped to it: the source of ``spread`` and the fields below."""
    clock_hz: float
    spread: tuple[Spread, ...]
    dataflows: tuple[tuple[Inner, ...], ...]
    """Allowed inner loops, the innermost first; other loops lie outside, in any order."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that its costs depend on."""
        return sha256(f"{self.hardware}\0{self.mapping}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Mapped:
    """A layer mapped to an array. Loops are rounded up to the steps that the array takes together."""

    sizes: dict[str, int]
    """Steps of every loop (B, G, K, C, OY, OX, FY, FX), in space and time together."""
    unrolled: dict[str, dict[str, int]]
    """Parallel steps of each loop, by dimension of the array."""

    def taken(self, loop: str) -> int:
        """Steps of a loop that the whole array takes in parallel."""
        return prod(steps.get(loop, 1) for steps in self.unrolled.values())

    @property
    def busy(self) -> int:
        """Number of MACs that work in parallel."""
        return prod(width for steps in self.unrolled.values() for width in steps.values())


def array_names() -> tuple[str, ...]:
    """Names of the built-in arrays."""
    files = resources.files(__package__).joinpath("arrays").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def array(name: str) -> Array:
    """A built-in array. Raises ``UnknownArray``."""
    if name not in array_names():
        raise UnknownArray(f"unknown array {name!r} (choose from {', '.join(array_names())})")
    folder = resources.files(__package__).joinpath("arrays")
    mapping = folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    read = parse_toml(mapping)
    return Array(
        kind=read["kind"],
        hardware=folder.joinpath(read["hardware"]).read_text(encoding="utf-8"),
        mapping=mapping,
        clock_hz=read["clock_hz"],
        spread=tuple(Spread(one["dimension"], one["size"], tuple(one["loops"])) for one in read["spread"]),
        dataflows=tuple(
            tuple(Inner(tuple(one["loops"]), one["most"]) for one in dataflow) for dataflow in read["dataflows"]
        ),
    )


def lay(shape: Shape, array: Array) -> Mapped:
    """Map a layer to an array by the array's rule: each dimension takes, in turn, as much of its loops as fits.

    Of the widths that need the fewest passes the narrowest is taken, and the loop is rounded up to a multiple of
    it: the tool truncates steps that do not divide a loop, and would then count too few transfers.
    """
    left = loops(shape)
    taken = dict.fromkeys(left, 1)
    unrolled = {spread.dimension: _take(spread, left, taken) for spread in array.spread}
    return Mapped({loop: left[loop] * taken[loop] for loop in left}, unrolled)


def loops(shape: Shape) -> dict[str, int]:
    """The loops of a layer, by their usual letters."""
    return {
        "B": 1,
        "G": shape.groups,
        "K": shape.outputs,
        "C": shape.inputs,
        "OY": shape.height,
        "OX": shape.width,
        "FY": shape.kernel_height,
        "FX": shape.kernel_width,
    }


def _take(spread: Spread, left: dict[str, int], taken: dict[str, int]) -> dict[str, int]:
    room = spread.size
    steps: dict[str, int] = {}
    for loop in spread.loops:
        passes = ceil(left[loop] / room)
        width = ceil(left[loop] / passes)
        if width > 1:
            steps[loop] = width
            left[loop], room = passes, room // width
            taken[loop] *= width
    return steps
