"""A site's own slurm.conf (with its gres.conf) read into a ``ClusterConfig``.

slurm.conf does not hold everything that shapes a schedule: associations and QOS live in slurmdbd, and releases
go by different rules. Where ``assoc.txt`` (``sacctmgr -P show assoc``), ``qos.txt`` (``sacctmgr -P show qos``) and
``version.txt`` (``scontrol --version``) stand next to the file, they are read too. ``unmodelled`` lists what the
file asks for and the simulator does not do. ``assumed`` lists what the file leaves open and this reading had to
choose. No setting is dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.atomic_file import read_regular
from mirage.domain.errors import ConfigError
from mirage.simulator.cluster import (
    OLDEST_RULES,
    Association,
    ClusterConfig,
    Partition,
    Qos,
    SlurmRules,
    rules_of,
)
from mirage.simulator.configuration.accountdump import default_accounts_first, parse_associations, parse_qos
from mirage.simulator.configuration.clusterchecks import ClusterFault, faults
from mirage.simulator.configuration.slurmconf_nodes import (
    Lines,
    effective,
    node_groups,
    partition_times,
    partitions,
)
from mirage.simulator.configuration.slurmconf_settings import (
    options,
    priority_weights,
    scheduler_parameters,
    unmodelled,
)
from mirage.slurm.conf import ConfText, Include, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSOCIATIONS_FILE = "assoc.txt"
QOS_FILE = "qos.txt"
USERS_FILE = "users.txt"
"""Which account is each user's default one; without it the first that is listed."""
VERSION_FILE = "version.txt"
GRES_FILE = "gres.conf"

Texts = dict[str, str]


@dataclass(frozen=True, slots=True)
class SlurmConfReport:
    """A cluster as a slurm.conf describes it, and what that description leaves out, in sentences."""

    config: ClusterConfig
    unmodelled: tuple[str, ...]
    """Settings that shape schedules and that the simulator does not follow."""
    assumed: tuple[str, ...]
    """Choices made where the file says nothing and Slurm's releases differ, or data are missing."""


def inspect_slurm_conf(path: str | Path, told: Texts | None = None) -> SlurmConfReport:
    """Read a slurm.conf and what stands next to it. Raises ``ConfigError`` naming the file, line and key.

    ``told`` are texts by the names of files that stand for those not next to it.
    """
    main = Path(path)
    beside: Texts = dict(told or {})
    for name in (GRES_FILE, ASSOCIATIONS_FILE, QOS_FILE, USERS_FILE, VERSION_FILE):
        if (main.parent / name).is_file():
            beside[name] = _read(main.parent / name, str(main))
    return read_slurm_conf(_read(main, str(main)), str(main), beside, _include_from(main.parent))


def read_slurm_conf(
    text: str, file: str, beside: Texts | None = None, include: Include | None = None
) -> SlurmConfReport:
    """As ``inspect_slurm_conf``, from texts; ``beside`` maps the names of the files next to it to theirs."""
    beside = beside or {}
    conf = parse(text, file, include)
    gres = parse(beside[GRES_FILE], GRES_FILE, include) if _uses_gres(conf, beside) else None
    groups, node_places = node_groups(conf, gres)
    parts, partition_places = partitions(conf, groups)
    named = conf.get("clustername")
    cluster = named.value if named else Path(file).stem
    associations, qos, notes = _accounts(beside, cluster)
    enforced = options(conf.get("accountingstorageenforce"))
    rules = rules_of(beside.get(VERSION_FILE, ""))
    config = ClusterConfig(
        name=cluster,
        nodes=groups,
        partitions=tuple(_with_known_qos(p, qos) for p in parts),
        qos=qos,
        associations=associations,
        enforce_associations=bool(associations) and bool(enforced.keys() & _ASSOCIATIONS_BY),
        enforce_limits=bool(enforced.keys() & _LIMITS_BY),
        scheduler=scheduler_parameters(conf),
        priority=priority_weights(conf),
        slurm=rules or OLDEST_RULES,
        source=file,
    )
    _check(config, file, Lines(node_places, partition_places), conf)
    assumed = (*_assumed(conf, parts, associations, qos), *_assumed_release(file, rules))
    return SlurmConfReport(config, (*unmodelled(conf), *notes), assumed)


_LIMITS_BY = frozenset({"limits", "safe", "all"})
_ASSOCIATIONS_BY = _LIMITS_BY | {"associations", "qos", "wckeys"}
"""man slurm.conf, AccountingStorageEnforce: limits, qos and wckeys bring associations with them."""


def _uses_gres(conf: ConfText, beside: Texts) -> bool:
    return GRES_FILE in beside and conf.get("grestypes") is not None


def _accounts(beside: Texts, cluster: str) -> tuple[tuple[Association, ...], tuple[Qos, ...], tuple[str, ...]]:
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    notes: tuple[str, ...] = ()
    if ASSOCIATIONS_FILE in beside:
        associations, notes = parse_associations(beside[ASSOCIATIONS_FILE], ASSOCIATIONS_FILE, cluster)
    if USERS_FILE in beside:
        associations = default_accounts_first(associations, beside[USERS_FILE], USERS_FILE)
    if QOS_FILE in beside:
        qos, more = parse_qos(beside[QOS_FILE], QOS_FILE)
        notes += more
    return associations, qos, notes


def _with_known_qos(partition: Partition, qos: tuple[Qos, ...]) -> Partition:
    """Without a QOS dump a partition's QOS has no limits that could be followed; ``_assumed`` says so."""
    return partition if qos else replace(partition, qos="")


def _assumed(
    conf: ConfText, parts: tuple[Partition, ...], associations: tuple[Association, ...], qos: tuple[Qos, ...]
) -> Iterator[str]:
    if conf.get("selecttype") is None:
        yield (
            f"{conf.file}: SelectType is not set: taken as select/cons_tres; Slurm 22.05 would take "
            "select/linear, which gives whole nodes."
        )
    weighted = any(s.key.lower().startswith("priorityweight") for s in conf.settings)
    if conf.get("prioritytype") is None and weighted:
        yield (
            f"{conf.file}: PriorityType is not set: taken as priority/multifactor since there are weights; "
            "Slurm 22.05 would take priority/basic and ignore them."
        )
    if sum(flagged.flag() for r in effective(conf, "partitionname") if (flagged := r.get("default"))) > 1:
        chosen = next(p.name for p in parts if p.default)
        yield f"{conf.file}: several partitions have Default=YES: the last one, {chosen}, is the default."
    for record in effective(conf, "partitionname"):
        max_time, default_time = partition_times(record)
        if default_time > max_time:
            yield f"{record.where}: DefaultTime is above MaxTime: ignored, as slurmctld does; jobs get MaxTime."
    if not associations:
        yield (
            f"{conf.file}: no {ASSOCIATIONS_FILE} next to it: all users have equal shares and no individual "
            f"limits (sacctmgr -P show assoc > {ASSOCIATIONS_FILE})."
        )
    named = sorted({p.qos for p in parts if p.qos})
    if named and not qos:
        yield (
            f"{conf.file}: no {QOS_FILE} next to it: the limits of the partitions' QOS ({', '.join(named)}) "
            f"are not known (sacctmgr -P show qos > {QOS_FILE})."
        )


def _assumed_release(file: str, rules: SlurmRules | None) -> Iterator[str]:
    if rules is None:
        yield (
            f"{file}: no {VERSION_FILE} next to it that names a release: scheduled by the rules of Slurm "
            f"{OLDEST_RULES} (scontrol --version > {VERSION_FILE})."
        )


def _check(config: ClusterConfig, file: str, lines: Lines, conf: ConfText) -> None:
    for fault in faults(config):
        raise ConfigError(_place(fault, file, lines, conf), fault.problem)


def _place(fault: ClusterFault, file: str, lines: Lines, conf: ConfText) -> str:
    section, *rest = fault.path
    index = rest[0] if rest and isinstance(rest[0], int) else 0
    if section == "nodes":
        return lines.nodes[index]
    if section == "partitions":
        return f"{lines.partitions[index]}: {rest[-1]}"
    if section in ("associations", "qos"):
        return f"{ASSOCIATIONS_FILE if section == 'associations' else QOS_FILE}: row {index + 1}"
    setting = conf.get("schedulerparameters")
    return f"{setting.where}: {rest[-1]}" if setting else file


def _include_from(folder: Path) -> Include:
    def include(path: str, where: str) -> tuple[str, str]:
        target = folder / path
        return str(target), _read(target, where)

    return include


def _read(path: Path, where: str) -> str:
    """Slurm reads its files as bytes; what is not UTF-8 (an odd comment) must not stop the reading."""
    try:
        return read_regular(path).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise ConfigError(where, f"{path} cannot be read: {error}") from error
