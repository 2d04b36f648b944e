"""Networks as lists of layers: the loops of each, without weights or values."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

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
class Shape:
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
    shape: Shape

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
        yield Layer(fields[0], fields[1], Shape(*map(int, fields[2:])))
