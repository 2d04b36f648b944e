"""From the validated tables of a cluster file to the frozen configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.simulator.cluster import (
    Association,
    ClusterConfig,
    FairShare,
    NodeEvent,
    NodeGroup,
    Partition,
    PriorityWeights,
    Qos,
    Reservation,
    SchedulerParameters,
    Scheduling,
)

if TYPE_CHECKING:
    from mirage.simulator.configuration.clusterschema import (
        ClusterFile,
        NodeSection,
        PartitionSection,
        PrioritySection,
    )

ALL_NODES = "ALL"


def build(tables: ClusterFile, source: str) -> ClusterConfig:
    """The configuration; its parts are not yet checked against each other."""
    nodes = tuple(_node_group(table) for table in tables.nodes)
    everywhere = tuple(name for group in nodes for name in group.names)
    only = len(tables.partitions) == 1
    return ClusterConfig(
        name=tables.cluster.name,
        nodes=nodes,
        partitions=tuple(_partition(table, everywhere, only) for table in tables.partitions),
        qos=tuple(Qos(**table.given()) for table in tables.qos),
        associations=tuple(Association(**table.given()) for table in tables.associations),
        default_association=Association(account="", **tables.default_association.given()),
        enforce_associations=tables.cluster.enforce_associations,
        enforce_limits=tables.cluster.enforce_limits,
        slurm=tables.cluster.slurm,
        scheduler=SchedulerParameters(over_time_limit=tables.cluster.over_time_limit, **tables.scheduler.given()),
        priority=_priority(tables.priority),
        reservations=tuple(Reservation(**table.given()) for table in tables.reservations),
        node_events=tuple(NodeEvent(**table.given()) for table in tables.node_events),
        scheduling=Scheduling(tables.cluster.scheduling),
        source=source,
    )


def _node_group(table: NodeSection) -> NodeGroup:
    rest = table.given("memory")
    return NodeGroup(memory_mb=table.memory, **rest)


def _partition(table: PartitionSection, everywhere: tuple[str, ...], only: bool) -> Partition:
    rest = table.given("nodes", "default")
    nodes = everywhere if ALL_NODES in table.nodes else table.nodes
    default = table.default if "default" in table.model_fields_set else only
    return Partition(nodes=nodes, default=default, **rest)


def _priority(table: PrioritySection) -> PriorityWeights:
    rest = table.given("fair_share_algorithm")
    return PriorityWeights(fair_share_algorithm=FairShare(table.fair_share_algorithm), **rest)
