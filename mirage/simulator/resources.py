"""Resources of a cluster as columns: CPUs, memory, generic resources, in the kernel's order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.simulator.cluster import ClusterConfig, NodeGroup

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Resources:
    """Names of the scheduled resources: ``cpu``, ``mem`` where any node has memory, then GRES.

    A typed GRES (``gpu:a100``) counts in a separate column and in the column of its name (``gpu``), so that
    requests with and without a type are both served and neither over-allocates.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, cluster: ClusterConfig) -> Resources:
        """The resources that the cluster's nodes have."""
        names = {"cpu": None}
        if any(group.memory_mb > 0 for group in cluster.nodes):
            names["mem"] = None
        for group in cluster.nodes:
            for gres, _ in group.gres:
                names[gres.partition(":")[0]] = None
                names[gres] = None
        return cls(tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def first_gres(self) -> int:
        """The column after those of CPUs and memory."""
        return 1 + ("mem" in self.names)

    def index(self, name: str) -> int:
        """The column of a resource by Slurm's TRES name (``gres/gpu:a100``, ``cpu``, ``node``); -1: not here.

        ``node`` is the column after the last resource.
        """
        name = name.removeprefix("gres/").removeprefix("gres:")
        if name == "node":
            return len(self.names)
        return self.names.index(name) if name in self.names else -1

    def vector(self, cpus: int, memory_mb: int, gres: Iterable[tuple[str, int]]) -> Int64:
        """Counts by column. Raises ``KeyError`` with the GRES name that no node has."""
        counts = np.zeros(len(self.names), dtype=np.int64)
        counts[0] = cpus
        if "mem" in self.names:
            counts[self.names.index("mem")] = memory_mb
        for name, number in gres:
            for column in dict.fromkeys((name.partition(":")[0], name)):
                if column not in self.names:
                    raise KeyError(name)
                counts[self.names.index(column)] += number
        return counts

    def of_group(self, group: NodeGroup) -> Int64:
        """Resources of one node of the group."""
        return self.vector(group.cpus, group.memory_mb, group.gres)
