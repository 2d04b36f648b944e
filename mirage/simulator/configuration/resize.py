"""The same cluster with another number of nodes, for stress runs and for clusters that grew."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.simulator.cluster import ClusterConfig, NodeEvent, Partition, Reservation


def with_nodes(config: ClusterConfig, count: int) -> ClusterConfig:
    """``config`` resized to its first ``count`` nodes, or to more by continuing the numbers in their names.

    For clusters of one node group only: with several it would be a guess which nodes go. Partitions, reservations
    and node events keep those of their nodes that remain; partitions of the whole cluster grow with it. Raises
    ``ConfigError`` where the result makes no sense, such as a partition without nodes.
    """
    if len(config.nodes) != 1:
        kinds = ", ".join(f"{len(group.names)} like {group.names[0]}" for group in config.nodes)
        raise _refused(config, f"has {len(config.nodes)} node groups ({kinds}): write a cluster file of that size")
    group = config.nodes[0]
    if count < 1:
        raise _refused(config, f"cannot have {count} nodes")
    names = group.names[:count] + _further(config, group.names, count - len(group.names))
    kept = frozenset(names)
    whole = frozenset(group.names)
    return replace(
        config,
        nodes=(replace(group, names=names),),
        partitions=tuple(_partition(config, p, names, whole <= set(p.nodes), kept) for p in config.partitions),
        reservations=tuple(_reservation(config, r, kept) for r in config.reservations),
        node_events=tuple(e for event in config.node_events if (e := _event(event, kept)).nodes),
    )


def _further(config: ClusterConfig, names: tuple[str, ...], more: int) -> tuple[str, ...]:
    if more <= 0:
        return ()
    last = re.fullmatch(r"(.*?)([0-9]{1,18})", names[-1])
    if last is None:
        raise _refused(config, f"cannot grow: its last node, {names[-1]}, has no number to continue from")
    first = int(last[2]) + 1
    new = tuple(f"{last[1]}{number:0{len(last[2])}d}" for number in range(first, first + more))
    if taken := set(new) & set(names):
        raise _refused(config, f"cannot grow: there is a node {min(taken)} already")
    return new


def _partition(
    config: ClusterConfig, partition: Partition, names: tuple[str, ...], whole: bool, kept: frozenset[str]
) -> Partition:
    nodes = names if whole else tuple(name for name in partition.nodes if name in kept)
    if len(nodes) < max(1, partition.min_nodes):
        needed = f"needs {partition.min_nodes}" if partition.min_nodes > 1 else "needs one"
        raise _refused(
            config, f"with {len(names)} nodes leaves partition {partition.name} {len(nodes)}; it {needed}"
        )
    return replace(partition, nodes=nodes)


def _reservation(config: ClusterConfig, reservation: Reservation, kept: frozenset[str]) -> Reservation:
    nodes = tuple(name for name in reservation.nodes if name in kept)
    if not nodes:
        raise _refused(config, f"resized leaves reservation {reservation.name} no node")
    return replace(reservation, nodes=nodes)


def _event(event: NodeEvent, kept: frozenset[str]) -> NodeEvent:
    return replace(event, nodes=tuple(name for name in event.nodes if name in kept))


def _refused(config: ClusterConfig, problem: str) -> ConfigError:
    return ConfigError(config.source or config.name, f"cluster {config.name} {problem}")
