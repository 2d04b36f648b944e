"""NodeName, DownNodes, NodeSet and PartitionName lines, as nodes and partitions of the configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.errors import ConfigError, MirageError
from mirage.domain.job import UNLIMITED, Seconds
from mirage.simulator.cluster import NodeGroup, Partition
from mirage.simulator.configuration import spellings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.slurm.conf import ConfRecord, ConfSetting, ConfText

MAX_CPUS = 65_533
MAX_MEMORY_MB = 1 << 40
MAX_FACTOR = 65_533
MAX_WEIGHT = (1 << 32) - 1
_NO_LIMIT = ("unlimited", "infinite", "-1")
_UNAVAILABLE = ("down", "drain", "drained", "draining", "fail", "failing")

GresPairs = tuple[tuple[str, int], ...]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Lines:
    """Sources of the configuration's parts: one place for each node group and each partition."""

    nodes: tuple[str, ...]
    partitions: tuple[str, ...]


def read(setting: ConfSetting, reader: Callable[[str], Value]) -> Value:
    """``reader`` on the value; what it objects to is put at the setting's file, line and key."""
    try:
        return reader(setting.value)
    except MirageError as error:
        raise setting.fault(str(error)) from error


def effective(text: ConfText, kind: str) -> tuple[ConfRecord, ...]:
    """Records of one kind with their ``DEFAULT`` lines applied (man slurm.conf: they add up, in file order)."""
    defaults: tuple[ConfSetting, ...] = ()
    records = []
    for record in text.of_kind(kind):
        if record.name.upper() == "DEFAULT":
            defaults += record.settings[1:]
        else:
            records.append(replace(record, settings=(record.settings[0], *defaults, *record.settings[1:])))
    return tuple(records)


def node_groups(text: ConfText, gres_types: ConfText | None) -> tuple[tuple[NodeGroup, ...], tuple[str, ...]]:
    """The nodes, and for each group the place of its NodeName line.

    A line whose nodes differ (some in DownNodes, some with another GRES type in gres.conf) becomes several
    groups. FUTURE nodes do not exist yet and are left out.
    """
    memory = consumable_memory(text)
    down = _down_nodes(text)
    types = _gres_types(gres_types)
    groups: list[NodeGroup] = []
    places: list[str] = []
    for record in effective(text, "nodename"):
        for group in _split(_node_line(record, memory), down, types):
            groups.append(group)
            places.append(record.where)
    if not groups:
        raise ConfigError(text.file, "no NodeName line describes a node")
    return tuple(groups), tuple(places)


def consumable_memory(text: ConfText) -> bool:
    """Whether memory is allocated to jobs: SelectTypeParameters names it, or is unset (CR_Core_Memory)."""
    parameters = text.get("selecttypeparameters")
    return not whole_nodes(text) if parameters is None else "memory" in parameters.value.lower()


def whole_nodes(text: ConfText) -> bool:
    """Whether SelectType=select/linear allocates whole nodes everywhere."""
    select = text.get("selecttype")
    return select is not None and select.value.lower() == "select/linear"


def _node_line(record: ConfRecord, memory: bool) -> NodeGroup:
    names = () if _state(record) == "future" else _hosts(record.settings[0])
    features = record.get("features", "feature")
    weight = record.get("weight")
    gres = record.get("gres")
    return NodeGroup(
        names=names,
        cpus=_cpus(record),
        memory_mb=_memory(record) if memory else 0,
        gres=read(gres, spellings.gres) if gres else (),
        features=features.words() if features else (),
        weight=weight.integer(0, MAX_WEIGHT) if weight else 1,
        down=_state(record) in _UNAVAILABLE,
    )


def _state(record: ConfRecord) -> str:
    state = record.get("state")
    return state.value.lower() if state else "unknown"


def _cpus(record: ConfRecord) -> int:
    threads = _count(record, "threadspercore")
    cpus = _count(record, "boards") * _count(record, "sockets", "socketsperboard")
    cpus *= _count(record, "corespersocket") * threads
    if record.get("cpus", "procs"):
        cpus = _count(record, "cpus", "procs")
    reserved = record.get("corespeccount")
    listed = record.get("cpuspeclist")
    if reserved:
        cpus -= reserved.integer(0, MAX_CPUS) * threads
    elif listed:
        cpus -= read(listed, spellings.count_of_ids)
    if not 1 <= cpus <= MAX_CPUS:
        raise ConfigError(record.where, f"leaves {cpus} CPUs for jobs; expected 1 to {MAX_CPUS}")
    return cpus


def _count(record: ConfRecord, *keys: str) -> int:
    setting = record.get(*keys)
    return setting.integer(1, MAX_CPUS) if setting else 1


def _memory(record: ConfRecord) -> int:
    real, reserved = record.get("realmemory"), record.get("memspeclimit")
    total = real.integer(1, MAX_MEMORY_MB) if real else 1
    return max(1, total - (reserved.integer(0, MAX_MEMORY_MB) if reserved else 0))


def _hosts(setting: ConfSetting) -> tuple[str, ...]:
    return read(setting, spellings.hosts)


def _down_nodes(text: ConfText) -> frozenset[str]:
    down: set[str] = set()
    for record in text.of_kind("downnodes"):
        state = record.get("state")
        if state is None or state.value.lower() in _UNAVAILABLE:
            down.update(_hosts(record.settings[0]))
    return frozenset(down)


def _gres_types(gres: ConfText | None) -> dict[str, dict[str, set[str]]]:
    """GRES types by node name ("" for every node) and GRES name, from gres.conf."""
    types: dict[str, dict[str, set[str]]] = {}
    for record in gres.records if gres else ():
        name, kind, nodes = record.get("name"), record.get("type"), record.get("nodename")
        if name is None or kind is None or not kind.value:
            continue
        for node in _hosts(nodes) if nodes else ("",):
            types.setdefault(node, {}).setdefault(name.value, set()).add(kind.value)
    return types


def _split(group: NodeGroup, down: frozenset[str], types: dict[str, dict[str, set[str]]]) -> tuple[NodeGroup, ...]:
    def of_node(name: str) -> tuple[bool, GresPairs]:
        found = types.get("", {}) | types.get(name, {})
        return group.down or name in down, _typed(group.gres, found)

    parts = []
    for (is_down, gres), names in groupby(group.names, key=of_node):
        parts.append(replace(group, names=tuple(names), down=is_down, gres=gres))
    return tuple(parts)


def _typed(gres: GresPairs, types: dict[str, set[str]]) -> GresPairs:
    """GRES without a type in slurm.conf get the one type that gres.conf gives them on that node."""

    def full(name: str) -> str:
        found = types.get(name, set())
        return f"{name}:{next(iter(found))}" if len(found) == 1 else name

    return tuple((full(name), count) for name, count in gres)


def partitions(text: ConfText, groups: tuple[NodeGroup, ...]) -> tuple[tuple[Partition, ...], tuple[str, ...]]:
    """The partitions, and for each the place of its PartitionName line. Of several defaults the last one wins."""
    sets = _node_sets(text, groups)
    records = effective(text, "partitionname")
    if not records:
        raise ConfigError(text.file, "no PartitionName line describes a partition")
    found = [_partition(record, groups, sets, whole_nodes(text)) for record in records]
    chosen = next((p.name for p in reversed(found) if p.default), found[0].name if len(found) == 1 else "")
    settled = tuple(replace(p, default=p.name == chosen) for p in found)
    return settled, tuple(record.where for record in records)


def _partition(
    record: ConfRecord, groups: tuple[NodeGroup, ...], sets: dict[str, tuple[str, ...]], linear: bool
) -> Partition:
    nodes, state, default, qos = (record.get(key) for key in ("nodes", "state", "default", "qos"))
    over, share = record.get("overtimelimit"), record.get("oversubscribe", "shared")
    alone = record.get("exclusive")  # Slurm 26.05
    billing = record.get("tresbillingweights")
    max_time, default_time = partition_times(record)
    return Partition(
        name=record.name,
        nodes=_members(nodes, groups, sets) if nodes else (),
        max_time=max_time,
        default_time=default_time if default_time <= max_time else 0,
        max_nodes=_node_limit(record.get("maxnodes")),
        min_nodes=_node_limit(record.get("minnodes")),
        priority_tier=_factor(record.get("prioritytier", "priority")),
        priority_job_factor=_factor(record.get("priorityjobfactor", "priority")),
        exclusive=linear
        or (share is not None and share.value.lower() == "exclusive")
        or (alone is not None and alone.value.lower() == "node"),
        over_time_limit=over_time_limit(over, -1),
        qos=qos.value if qos else "",
        default=default.flag() if default else False,
        up=state.value.lower() == "up" if state else True,
        billing_weights=read(billing, spellings.tres_weights) if billing else (),
    )


def partition_times(record: ConfRecord) -> tuple[Seconds, Seconds]:
    """MaxTime and DefaultTime in seconds as written; slurmctld ignores a DefaultTime above MaxTime."""
    return time_limit(record.get("maxtime"), UNLIMITED), time_limit(record.get("defaulttime"), 0)


def time_limit(setting: ConfSetting | None, otherwise: Seconds) -> Seconds:
    """A MaxTime-like limit in seconds: Slurm keeps whole minutes and rounds seconds up."""
    if setting is None or setting.value.upper() in ("NONE", ""):
        return otherwise
    seconds = read(setting, spellings.slurm_duration)
    return min(-(-seconds // 60) * 60, UNLIMITED)


def over_time_limit(setting: ConfSetting | None, otherwise: Seconds) -> Seconds:
    """OverTimeLimit, which is in minutes, in seconds."""
    if setting is None:
        return otherwise
    if setting.value.lower() in _NO_LIMIT:
        return UNLIMITED
    return setting.integer(0, 65_533) * 60


def _factor(setting: ConfSetting | None) -> int:
    return setting.integer(0, MAX_FACTOR) if setting else 1


def _node_limit(setting: ConfSetting | None) -> int:
    if setting is None or setting.value.lower() in _NO_LIMIT:
        return 0
    return setting.integer(0, MAX_WEIGHT)


def _node_sets(text: ConfText, groups: tuple[NodeGroup, ...]) -> dict[str, tuple[str, ...]]:
    sets: dict[str, tuple[str, ...]] = {}
    for record in text.of_kind("nodeset"):
        feature, nodes = record.get("feature"), record.get("nodes")
        members = [n for g in groups if feature and feature.value in g.features for n in g.names]
        members += _hosts(nodes) if nodes else ()
        sets[record.name] = tuple(dict.fromkeys(members))
    return sets


def _members(
    setting: ConfSetting, groups: tuple[NodeGroup, ...], sets: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """``ALL``, node sets and host lists; in the order of the NodeName lines, as Slurm keeps them."""
    everywhere = {name: None for group in groups for name in group.names}
    wanted: dict[str, None] = {}
    for name in _hosts(setting):
        if name.upper() == "ALL":
            wanted |= everywhere
        else:
            wanted |= dict.fromkeys(sets.get(name, (name,)))
    return (*(n for n in everywhere if n in wanted), *(n for n in wanted if n not in everywhere))
