"""Inputs of the cost model: networks as lists of layers, and the arrays that run them.

A layer is its loops, without weights or values. An array is hardware, clock, and the mapping of layers to it.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from math import ceil, prod
from typing import TYPE_CHECKING

from mirage.documentreading import parse_toml
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIZES = ("groups", "outputs", "inputs", "height", "width", "kernel_height", "kernel_width", "stride")
_MOST_DIGITS = 9
COLUMNS = ("layer", "kind", *SIZES)
KINDS = ("conv", "depthwise", "dense", "matmul")


class LayerListError(MirageError):
    """An invalid list of layers; the text names the place and the reason."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Loops of a layer: a convolution in groups. A dense layer is one whose rows are its output's height."""

    groups: int
    outputs: int
    """Channels (filters) of one group."""
    inputs: int
    """Channels of one group."""
    height: int
    """Size of the output; the rows of a matrix."""
    width: int
    kernel_height: int
    kernel_width: int
    stride: int

    @property
    def macs(self) -> int:
        """Number of multiply-add operations."""
        return self.filter_words * self.height * self.width

    @property
    def filter_words(self) -> int:
        """Words of the second operand: the filters, or the second matrix."""
        return self.groups * self.outputs * self.inputs * self.kernel_height * self.kernel_width


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a network."""

    name: str
    kind: str
    """``conv``, ``depthwise``, ``dense``, or ``matmul``: a product of two activations, without weights."""
    shape: LayerShape

    @property
    def weights(self) -> int:
        """Trained words, without biases and norms."""
        return 0 if self.kind == "matmul" else self.shape.filter_words


@dataclass(frozen=True, slots=True)
class Network:
    """A network's layers, in the order in which they run."""

    name: str
    title: str
    layers: tuple[Layer, ...]

    @property
    def macs(self) -> int:
        """Multiply-add operations of one inference."""
        return sum(layer.shape.macs for layer in self.layers)

    @property
    def weights(self) -> int:
        """Words of all layers."""
        return sum(layer.weights for layer in self.layers)


def network_names() -> tuple[str, ...]:
    """Names of the built-in networks."""
    files = resources.files(__package__).joinpath("networks").iterdir()
    return tuple(sorted(file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")))


def network(name: str) -> Network:
    """A built-in network. Raises ``LayerListError`` for an unknown name."""
    if name not in network_names():
        raise LayerListError(f"unknown network {name!r} (choose from {', '.join(network_names())})")
    text = resources.files(__package__).joinpath("networks", f"{name}.csv").read_text(encoding="utf-8")
    return read_network(name, text.splitlines())


def read_network(name: str, lines: Iterable[str]) -> Network:
    """A network from its list: ``#`` comment lines, the names of the columns, one line per layer."""
    numbered = list(enumerate(lines, 1))
    title = " ".join(line.lstrip("# ").strip() for _, line in numbered if line.startswith("#"))
    rows = [(number, line) for number, line in numbered if line.strip() and not line.startswith("#")]
    if not rows or tuple(rows[0][1].split(",")) != COLUMNS:
        raise LayerListError(f"{name}: the first line after comments must be {','.join(COLUMNS)}")
    layers = tuple(_layers(name, rows[1:]))
    twice = sorted(layer for layer, times in Counter(layer.name for layer in layers).items() if times > 1)
    if not layers or twice:
        raise LayerListError(f"{name}: {'duplicate layers: ' + ', '.join(twice) if twice else 'no layers'}")
    return Network(name, title, layers)


def _layers(name: str, rows: list[tuple[int, str]]) -> Iterator[Layer]:
    for (number, _), fields in zip(rows, csv.reader(line for _, line in rows), strict=True):
        where = f"{name}, line {number}"
        if len(fields) != len(COLUMNS) or fields[1] not in KINDS:
            raise LayerListError(f"{where}: expected {len(COLUMNS)} fields, the second one of {', '.join(KINDS)}")
        if not all(field.isdecimal() and len(field) <= _MOST_DIGITS and int(field) > 0 for field in fields[2:]):
            raise LayerListError(f"{where}: sizes must be integers above 0, of at most {_MOST_DIGITS} digits")
        yield Layer(fields[0], fields[1], LayerShape(*map(int, fields[2:])))


class UnknownArray(MirageError):
    """An unknown name of an array; the text lists the known names."""


@dataclass(frozen=True, slots=True)
class ArrayDimension:
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
    spread: tuple[ArrayDimension, ...]
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
        spread=tuple(ArrayDimension(one["dimension"], one["size"], tuple(one["loops"])) for one in read["spread"]),
        dataflows=tuple(
            tuple(Inner(tuple(one["loops"]), one["most"]) for one in dataflow) for dataflow in read["dataflows"]
        ),
    )


def lay(shape: LayerShape, array: Array) -> Mapped:
    """Map a layer to an array by the array's rule: each dimension takes, in turn, as much of its loops as fits.

    Of the widths that need the fewest passes the narrowest is taken, and the loop is rounded up to a multiple of
    it: the tool truncates steps that do not divide a loop, and would then count too few transfers.
    """
    left = loops(shape)
    taken = dict.fromkeys(left, 1)
    unrolled = {spread.dimension: _take(spread, left, taken) for spread in array.spread}
    return Mapped({loop: left[loop] * taken[loop] for loop in left}, unrolled)


def loops(shape: LayerShape) -> dict[str, int]:
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


def _take(spread: ArrayDimension, left: dict[str, int], taken: dict[str, int]) -> dict[str, int]:
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
