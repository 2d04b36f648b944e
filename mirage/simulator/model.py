"""A cluster's configuration turned into the kernel's fixed tables, with its resources as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ConfigError
from mirage.simulator.cluster import FairShare, Partition, Qos
from mirage.simulator.kernel.layout import (
    CONFIG,
    NODES_DOWN,
    NODES_DRAIN,
    NODES_RESUME,
    PARTITION,
    RESERVATION,
    RESERVATION_EDGE,
    SINCE_FIRST_ELIGIBLE,
    SINCE_SUBMISSION,
    TIMELINE,
    WHILE_ELIGIBLE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.simulator.cluster import ClusterConfig, NodeGroup, Reservation

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


Words = NDArray[np.uint64]
Table = NDArray[np.void]

NODE_EVENTS = {"down": NODES_DOWN, "drain": NODES_DRAIN, "resume": NODES_RESUME}
MAX_FEATURES = 63
"""Bits of a signed word."""


@dataclass(frozen=True)
class ClusterTables:
    """Lookups and fixed tables of one cluster; never changes."""

    cluster: ClusterConfig

    @cached_property
    def resources(self) -> Resources:
        """Names of the scheduled resources: CPUs, memory, GRES."""
        return Resources.of(self.cluster)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Every node, in the order of the file: the kernel's node numbers."""
        return tuple(name for group in self.cluster.nodes for name in group.names)

    @cached_property
    def node_index(self) -> dict[str, int]:
        """Index of each node, by its name."""
        return {name: i for i, name in enumerate(self.node_names)}

    @cached_property
    def capacity(self) -> Int64:
        """Shape (nodes, resources + 1): what each node has, then its weight."""
        rows = [
            np.append(self.resources.of_group(group), group.weight)
            for group in self.cluster.nodes
            for _ in group.names
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.resources) + 1)

    @cached_property
    def partition_index(self) -> dict[str, int]:
        """Index of each partition, by its name."""
        return {p.name: i for i, p in enumerate(self.cluster.partitions)}

    @cached_property
    def default_partition(self) -> int:
        """The partition of jobs that name none: the default one, or the only one, else the first."""
        marked = [i for i, p in enumerate(self.cluster.partitions) if p.default]
        return marked[0] if marked else 0

    @cached_property
    def members(self) -> tuple[NDArray[np.bool_], ...]:
        """Nodes of each partition, as masks over the node numbers."""
        return tuple(self._member_mask(p.nodes) for p in self.cluster.partitions)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Every node feature; a job's needs are bits by this order."""
        names = tuple(dict.fromkeys(f for group in self.cluster.nodes for f in group.features))
        if len(names) > MAX_FEATURES:
            raise ConfigError(
                self.cluster.source or self.cluster.name,
                f"{len(names)} node features; at most {MAX_FEATURES} are supported",
            )
        return names

    @cached_property
    def feature_members(self) -> tuple[NDArray[np.bool_], ...]:
        """For each of ``features``: which nodes have it."""
        return tuple(
            np.array([f in group.features for group in self.cluster.nodes for _ in group.names])
            for f in self.features
        )

    @cached_property
    def qos(self) -> dict[str, Qos]:
        """Each QOS by its name."""
        return {q.name: q for q in self.cluster.qos}

    @cached_property
    def whole_nodes(self) -> bool:
        """Whether every partition gives out whole nodes only, of one kind: then nodes need only be counted."""
        return all(
            p.exclusive and len(np.unique(self.capacity[mask, :-1], axis=0)) <= 1
            for p, mask in zip(self.cluster.partitions, self.members, strict=True)
        )

    def _member_mask(self, names: Iterable[str]) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.node_names), dtype=np.bool_)
        for name in names:
            if name not in self.node_index:
                raise ConfigError(self.cluster.source or self.cluster.name, f"unknown node {name}")
            mask[self.node_index[name]] = True
        return mask

    def words(self, mask: NDArray[np.bool_]) -> Words:
        """A mask over nodes as 64-bit words."""
        padded = np.zeros(self.word_count * 64, dtype=np.uint8)
        padded[: len(mask)] = mask
        packed: Words = np.packbits(padded, bitorder="little").view(np.uint64)
        return packed

    def node_words(self, names: Iterable[str]) -> Words:
        """A list of node names as 64-bit words. Raises ``ConfigError`` for an unknown node."""
        return self.words(self._member_mask(names))

    @property
    def word_count(self) -> int:
        """Number of 64-bit words of a node set."""
        return (len(self.node_names) + 63) // 64

    @cached_property
    def masks(self) -> Words:
        """Rows: partitions, features, reservations, node events."""
        rows = [self.words(m) for m in (*self.members, *self.feature_members)]
        rows += [self.node_words(r.nodes) for r in self.cluster.reservations]
        rows += [self.node_words(e.nodes) for e in self.cluster.node_events]
        return np.array(rows, dtype=np.uint64).reshape(len(rows), self.word_count)

    @property
    def first_reservation_mask(self) -> int:
        """The row of the first reservation in ``masks``."""
        return len(self.cluster.partitions) + len(self.features)

    def partition_table(self) -> Table:
        """Return the PARTITION rows of the kernel, one per partition in the configuration's order."""
        table = np.zeros(len(self.cluster.partitions), dtype=PARTITION)
        for i, p in enumerate(self.cluster.partitions):
            over = p.over_time_limit if p.over_time_limit >= 0 else self.cluster.scheduler.over_time_limit
            table[i] = (p.priority_tier, int(p.up), over, i, int(p.exclusive))
        return table

    def reservation_table(self, reservations: tuple[Reservation, ...], first_mask: int) -> Table:
        """RESERVATION rows whose node sets stand in the masks from ``first_mask`` on."""
        table = np.zeros(len(reservations), dtype=RESERVATION)
        for i, r in enumerate(reservations):
            table[i] = (r.start, r.end, first_mask + i)
        return table

    def timeline(self) -> Table:
        """Events known in advance, by time: edges of reservations, changes of nodes."""
        first_event = self.first_reservation_mask + len(self.cluster.reservations)
        entries = [
            (time, RESERVATION_EDGE, self.first_reservation_mask + i)
            for i, r in enumerate(self.cluster.reservations)
            for time in (r.start, r.end)
        ]
        entries += [
            (e.time, NODE_EVENTS[e.state], first_event + i) for i, e in enumerate(self.cluster.node_events)
        ]
        return np.array(sorted(entries), dtype=TIMELINE)

    def config_table(self, users: int, arrays: int, tree_users: int) -> Table:
        """Return the CONFIG row of the kernel: scheduler and priority parameters."""
        s, p = self.cluster.scheduler, self.cluster.priority
        algorithm = {FairShare.NONE: 0, FairShare.CLASSIC: 1, FairShare.FAIR_TREE: 2}[p.fair_share_algorithm]
        counted = s.bf_max_job_part > 0 or s.bf_max_job_user > 0 or (s.bf_max_job_array_resv > 0 and arrays > 0)
        values: dict[str, Any] = {
            "nodes": len(self.node_names),
            "cpus": self.cluster.cpu_count,
            "resources": len(self.resources),
            "first_gres": self.resources.first_gres,
            "whole_nodes": int(self.whole_nodes),
            "uniform_weight": int(len({group.weight for group in self.cluster.nodes}) == 1),
            "release": int(self.cluster.slurm.replace(".", "")),
            "backfill": int(s.backfill),
            "max_age": p.max_age,
            "calc_period": max(p.calc_period, 1),
            "boot": self.cluster.boot,
            "ageing": self._ageing(),
            "favor_small": int(p.favor_small),
            "in_turn": int(p.in_turn),
            "fair_share": algorithm,
            "dampening": p.dampening,
            "partitions": len(self.cluster.partitions),
            "users": users,
            "counted": int(counted),
            "reservations": len(self.cluster.reservations),
            "users_in_tree": tree_users,
            "w_age": float(p.age),
            "w_fair_share": float(p.fair_share) if algorithm else 0.0,
            "decay": np.log(2.0) / p.decay_half_life if p.decay_half_life > 0 else 0.0,
        }
        names = CONFIG.names or ()
        values |= {name: getattr(s, name) for name in names if name not in values and hasattr(s, name)}
        return np.array([tuple(values.get(name, 0) for name in names)], dtype=CONFIG)

    def _ageing(self) -> int:
        if self.cluster.priority.accrue_always:
            return SINCE_SUBMISSION
        return WHILE_ELIGIBLE if self.cluster.enforce_limits else SINCE_FIRST_ELIGIBLE

    def default_limit(self, partition: Partition) -> int:
        """The time limit of a job that gives none."""
        return partition.default_time or partition.max_time
