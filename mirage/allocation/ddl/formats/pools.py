"""Pools in short notation: ``8x8``, ``4x8:v100@2.5,2x4:k80@0.45``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from mirage.domain.errors import ConfigError
from mirage.domain.pool import Pool

_PART = re.compile(
    r"(?P<nodes>[1-9]\d{0,4})x(?P<devices>[1-9]\d{0,3})(:(?P<kind>[\w.-]+))?(@(?P<price>\d+(\.\d*)?))?", re.ASCII
)
_MOST_KINDS = 64
PLAIN_KIND = "gpu"
"""Kind of devices without a stated kind."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A number of equal nodes."""

    count: int
    devices: int
    """Devices of each node, joined by fast links."""
    kind: str = PLAIN_KIND
    price: float = 1.0
    """Dollars per device and hour."""
    cpus: int = 128
    memory_mb: int = 1 << 20


def parse_pool(text: str) -> Pool:
    """Parse ``NODESxDEVICES[:KIND][@DOLLARS]``, several comma-separated; raises ``ConfigError``."""
    parts = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise ConfigError(
                "--pool", f"{part.strip()!r} is not NODESxDEVICES[:KIND][@DOLLARS], such as 8x8:a100@2.5"
            )
        said = found.groupdict()
        parts.append(
            Nodes(
                int(said["nodes"]), int(said["devices"]), said["kind"] or PLAIN_KIND, float(said["price"] or 1.0)
            )
        )
    return build_pool(parts)


def build_pool(parts: list[Nodes]) -> Pool:
    """A pool of nodes ``n0``, ``n1``, ... below one switch. Raises ``ConfigError`` for one kind at two prices."""
    prices = _prices(parts)
    kinds = tuple(prices)
    nodes = [part for part in parts for _ in range(part.count)]
    held = [node.devices for node in nodes]
    device_node = np.repeat(np.arange(len(nodes), dtype=np.int32), held)
    return Pool(
        node_names=tuple(f"n{number}" for number in range(len(nodes))),
        cpus=np.array([node.cpus for node in nodes], dtype=np.int32),
        memory_mb=np.array([node.memory_mb for node in nodes], dtype=np.int64),
        switch=np.zeros(len(nodes), dtype=np.int32),
        device_node=device_node,
        device_index=np.concatenate([np.arange(count, dtype=np.int32) for count in held]),
        device_kind=np.repeat(np.array([kinds.index(node.kind) for node in nodes], dtype=np.int32), held),
        island=device_node.copy(),
        kinds=kinds,
        price=np.array(list(prices.values())),
    )


def _prices(parts: list[Nodes]) -> dict[str, float]:
    prices: dict[str, float] = {}
    for part in parts:
        if prices.setdefault(part.kind, part.price) != part.price:
            raise ConfigError("--pool", f"{part.kind!r} has two prices: {prices[part.kind]:g} and {part.price:g}")
    if len(prices) > _MOST_KINDS:
        raise ConfigError("--pool", f"{len(prices)} kinds of devices (at most {_MOST_KINDS})")
    return prices
