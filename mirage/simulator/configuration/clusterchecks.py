"""Conditions between the parts of a cluster configuration, whatever file it came from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.simulator.configuration.toml_errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.simulator.cluster import Association, ClusterConfig, Partition, SchedulerParameters

FaultPath = tuple[str | int, ...]

ROOT_ACCOUNT = "root"

_RANGES: dict[str, tuple[int, int]] = {
    # man slurm.conf, SchedulerParameters (Slurm's minima and maxima), in seconds where they are durations.
    "bf_interval": (1, 10_800),
    "bf_window": (60, 43_200 * 60),
    "bf_resolution": (1, 3600),
    "bf_max_job_test": (1, 1_000_000),
    "bf_max_job_array_resv": (0, 1000),
    "bf_max_job_start": (0, 10_000),
    "bf_min_age_reserve": (0, 2_592_000),
    "default_queue_depth": (1, 1_000_000),
    "sched_interval": (1, 86_400),
    "batch_sched_delay": (0, 3600),
}


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """One thing that is wrong: the path of the key in the configuration, and the sentence about it."""

    path: FaultPath
    problem: str


def faults(config: ClusterConfig) -> Iterator[ClusterFault]:
    """Everything that does not fit together, in the order of the file's sections."""
    yield from _node_faults(config)
    yield from _partition_faults(config)
    yield from _account_faults(config)
    yield from _scheduler_faults(config.scheduler)
    yield from _calendar_faults(config)


def _node_faults(config: ClusterConfig) -> Iterator[ClusterFault]:
    seen: dict[str, int] = {}
    for index, group in enumerate(config.nodes):
        if not group.names:
            yield ClusterFault(("nodes", index, "names"), "names no node")
        for name in group.names:
            if name in seen:
                yield ClusterFault(
                    ("nodes", index, "names"), f"node {name} is already in node group {seen[name] + 1}"
                )
            seen[name] = index
        kinds = Counter(name for name, _ in group.gres)
        for kind, times in kinds.items():
            if times > 1:
                yield ClusterFault(("nodes", index, "gres"), f"{kind} is given {times} times")
            if ":" in kind and kind.split(":")[0] in kinds:
                yield ClusterFault(
                    ("nodes", index, "gres"), f"{kind.split(':')[0]} is given with and without a type"
                )


def _partition_faults(config: ClusterConfig) -> Iterator[ClusterFault]:
    known = {name for group in config.nodes for name in group.names}
    qos = [q.name for q in config.qos]
    yield from _repeated("partitions", [p.name for p in config.partitions])
    yield from _repeated("qos", qos)
    defaults = [i for i, p in enumerate(config.partitions) if p.default]
    for index in defaults[1:]:
        first = config.partitions[defaults[0]].name
        yield ClusterFault(("partitions", index, "default"), f"partition {first} is the default already")
    for index, partition in enumerate(config.partitions):
        for key, problem in _one_partition(partition, known, qos):
            yield ClusterFault(("partitions", index, key), problem)


def _one_partition(partition: Partition, known: set[str], qos: list[str]) -> Iterator[tuple[str, str]]:
    unknown = [name for name in partition.nodes if name not in known]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        yield "nodes", f"no such node: {unknown[0]}{more}{did_you_mean(unknown[0], known)}"
    if len(set(partition.nodes)) < len(partition.nodes):
        twice = Counter(partition.nodes).most_common(1)[0][0]
        yield "nodes", f"node {twice} is listed twice"
    if partition.max_time < 1:
        yield "max_time", "must be at least a second"
    if partition.default_time > partition.max_time:
        yield "default_time", f"{partition.default_time} s is longer than max_time, {partition.max_time} s"
    if partition.nodes and partition.min_nodes > len(partition.nodes):
        yield "min_nodes", f"{partition.min_nodes} is more than the partition's {len(partition.nodes)} nodes"
    if partition.max_nodes and partition.min_nodes > partition.max_nodes:
        yield "min_nodes", f"{partition.min_nodes} is more than max_nodes, {partition.max_nodes}"
    if partition.qos and partition.qos not in qos:
        yield "qos", f"no such QOS: {partition.qos}{did_you_mean(partition.qos, qos)}"


def _account_faults(config: ClusterConfig) -> Iterator[ClusterFault]:
    parents = {a.account: a.parent for a in config.associations if not a.user}
    seen: set[tuple[str, str]] = set()
    for index, row in enumerate(config.associations):
        if (row.account, row.user) in seen:
            who = f"user {row.user} in account {row.account}" if row.user else f"account {row.account}"
            yield ClusterFault(("associations", index, "account"), f"{who} has a row already")
        seen.add((row.account, row.user))
        for key, problem in _one_association(row, parents):
            yield ClusterFault(("associations", index, key), problem)


def _one_association(row: Association, parents: dict[str, str]) -> Iterator[tuple[str, str]]:
    if row.user:
        if row.account not in parents and row.account != ROOT_ACCOUNT:
            hint = did_you_mean(row.account, parents)
            yield "account", f"account {row.account} of user {row.user} has no row of its own{hint}"
        if row.parent and row.parent != row.account:
            yield "parent", f"the parent of user {row.user} is its account, {row.account}"
        return
    if row.parent and row.parent not in parents and row.parent != ROOT_ACCOUNT:
        yield "parent", f"no such account: {row.parent}{did_you_mean(row.parent, parents)}"
    if _in_cycle(row.account, parents):
        yield "parent", f"account {row.account} is its own ancestor"


def _in_cycle(account: str, parents: dict[str, str]) -> bool:
    above = parents.get(account, "")
    for _ in parents:
        if above == account:
            return True
        if not above:
            return False
        above = parents.get(above, "")
    return False


def _scheduler_faults(scheduler: SchedulerParameters) -> Iterator[ClusterFault]:
    for name, (low, high) in _RANGES.items():
        value = getattr(scheduler, name)
        if not low <= value <= high:
            unit = " s" if name in _IN_SECONDS else ""
            yield ClusterFault(
                ("scheduler", name), f"{value}{unit} is outside Slurm's range, {low} to {high}{unit}"
            )
    if scheduler.bf_resolution > scheduler.bf_window:
        problem = f"{scheduler.bf_resolution} s is coarser than the whole bf_window, {scheduler.bf_window} s"
        yield ClusterFault(("scheduler", "bf_resolution"), problem)
    for name in ("bf_max_job_user", "bf_max_job_part"):
        if getattr(scheduler, name) > scheduler.bf_max_job_test:
            problem = f"{getattr(scheduler, name)} is more than bf_max_job_test, {scheduler.bf_max_job_test}"
            yield ClusterFault(("scheduler", name), problem)


_IN_SECONDS = {
    "bf_interval",
    "bf_window",
    "bf_resolution",
    "bf_min_age_reserve",
    "sched_interval",
    "batch_sched_delay",
}


def _calendar_faults(config: ClusterConfig) -> Iterator[ClusterFault]:
    known = {name for group in config.nodes for name in group.names}
    yield from _repeated("reservations", [r.name for r in config.reservations])
    for index, reservation in enumerate(config.reservations):
        if reservation.end <= reservation.start:
            yield ClusterFault(("reservations", index, "end"), "is not after start")
        yield from _unknown_nodes(("reservations", index, "nodes"), reservation.nodes, known)
    for index, event in enumerate(config.node_events):
        yield from _unknown_nodes(("node_events", index, "nodes"), event.nodes, known)


def _unknown_nodes(path: FaultPath, names: tuple[str, ...], known: set[str]) -> Iterator[ClusterFault]:
    for name in names:
        if name not in known:
            yield ClusterFault(path, f"no such node: {name}{did_you_mean(name, known)}")
            return


def _repeated(section: str, names: list[str]) -> Iterator[ClusterFault]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield ClusterFault((section, index, "name"), f"{name} is defined already")
        seen.add(name)
