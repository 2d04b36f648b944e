"""Cluster files: TOML, a site's own slurm.conf, or a preset, read into a ``ClusterConfig``.

The TOML format
===============

``[cluster]``, ``[[nodes]]`` and ``[[partitions]]`` are needed, the rest is optional; what is left out has
Slurm's default. Unknown keys are errors. A small example::

    [cluster]
    name = "mycluster"
    scheduling = "slurm"          # or "easy", "fifo": one pool of CPUs, as in the literature

    [[nodes]]
    names = "c[001-076]"          # Slurm's host lists; a list of them is fine too
    cpus = 128
    memory = "256G"               # or megabytes; left out: memory is not scheduled
    gres = "gpu:a100:3"           # "name:count" or "name:type:count", or a list of such
    features = ["a100", "ib"]

    [[partitions]]
    name = "gpu"
    nodes = "ALL"                 # or host lists
    max_time = "48:00:00"
    exclusive = true              # whole nodes only
    default = true

Durations
    A number is seconds. Text is a duration as Slurm prints it (``"2-00:00:00"``, ``"48:00:00"``, ``"30:00"``,
    ``"UNLIMITED"``) or a number with its unit (``"48h"``, ``"90m"``, ``"2d"``). Bare digits in quotes are
    rejected, since Slurm's files mean minutes by some of them and seconds by others.
Times
    TOML date-times or the same as text (UTC where no offset is given), or seconds since 1970.
Limits
    Left out: none. ``*_tres`` are ``"node=8,gres/gpu:a100=24,mem=1T"``.

====================== =========================================================================================
``[cluster]``          ``name``; ``scheduling`` ("slurm"); ``over_time_limit`` (0); ``enforce_associations``
                       (false: users without a row are welcome); ``enforce_limits`` (true;
                       false also means that a hold, put-off or new dependency leaves a job its age);
                       ``slurm`` ("22.05": the release by whose rules jobs are scheduled)
``[[nodes]]``          ``names``; ``cpus`` (1); ``memory``; ``gres``; ``features``; ``weight`` (1); ``down``
``[[partitions]]``     ``name``; ``nodes``; ``max_time`` (UNLIMITED); ``default_time`` (max_time); ``max_nodes``;
                       ``min_nodes``; ``priority_tier`` (1); ``priority_job_factor`` (1); ``exclusive``;
                       ``over_time_limit``; ``qos``; ``default`` (true where there is but one); ``up`` (true);
                       ``billing_weights`` ("CPU=1.0,Mem=0.25G,GRES/gpu=2.0")
``[[qos]]``            ``name``; ``priority``; ``max_wall``; ``grp_jobs``; ``grp_submit``; ``grp_tres``;
                       ``max_jobs_per_user``; ``max_submit_per_user``; ``max_tres_per_user``;
                       ``max_jobs_per_account``; ``max_tres_per_account``; ``max_tres_per_job``
``[[associations]]``   ``account``; ``user`` (left out: the row is the account's); ``parent``; ``shares`` (1);
                       ``max_jobs``; ``max_submit``; ``grp_jobs``; ``grp_submit``; ``grp_tres``; ``max_wall``;
                       ``priority``; ``usage`` (decayed, billing-seconds)
``[default_            the same limits and shares, for users without a row
association]``
``[scheduler]``        ``backfill`` (true) and, by their names in SchedulerParameters, ``bf_interval``,
                       ``bf_window``, ``bf_resolution``, ``bf_max_job_test``, ``bf_max_job_user``,
                       ``bf_max_job_part``, ``bf_max_job_array_resv``, ``bf_max_job_start``,
                       ``bf_min_age_reserve``, ``bf_min_prio_reserve``, ``bf_window_linear``, ``bf_continue``,
                       ``default_queue_depth``, ``sched_interval``, ``batch_sched_delay``, ``max_array_tasks``.
                       All durations follow the rule above: ``bf_window`` is seconds too, not minutes
``[priority]``         weights ``age``, ``fair_share``, ``job_size``, ``partition``, ``qos``, ``association``,
                       ``tres`` ("CPU=1000,GRES/gpu=3000"); ``max_age``; ``calc_period``; ``decay_half_life``;
                       ``favor_small``; ``small_relative_to_time``; ``accrue_always``; ``dampening``;
                       ``fair_share_algorithm`` ("fair-tree", "classic" or "none")
``[[reservations]]``   ``name``; ``start``; ``end``; ``nodes``; ``users``; ``accounts``
``[[node_events]]``    ``time``; ``nodes``; ``state`` ("down", "drain" or "resume")
====================== =========================================================================================
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mirage.atomic_file import read_regular
from mirage.documentreading import Fault, faults_of, more_faults, parse_toml
from mirage.domain.bounds import path_problem
from mirage.domain.errors import ConfigError
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
from mirage.simulator.configuration.clusterchecks import faults
from mirage.simulator.configuration.clusterschema import SECTIONS, ClusterFile
from mirage.simulator.configuration.slurmconf import inspect_slurm_conf
from mirage.simulator.configuration.toml_errors import did_you_mean, line_finder, line_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from mirage.simulator.configuration.clusterschema import NodeSection, PartitionSection, PrioritySection
    from mirage.simulator.configuration.toml_errors import Path as KeyPath

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


_SHOWN = 80
"""Characters of a name that an error quotes."""

__all__ = ["load_cluster", "parse_cluster", "presets", "read_cluster"]


def presets() -> tuple[str, ...]:
    """Names of the clusters that come with Mirage."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if f.name.endswith(".toml")))


def _folder() -> Traversable:
    return files("mirage.simulator.configuration") / "presets"


def load_cluster(path_or_preset: str) -> ClusterConfig:
    """The cluster of ``read_cluster``, without the sentences."""
    return read_cluster(path_or_preset)[0]


def read_cluster(path_or_preset: str) -> tuple[ClusterConfig, tuple[str, ...]]:
    """The cluster described by a preset's name, a TOML file, a slurm.conf or a directory that holds one.

    With it, for a slurm.conf, what the simulator does not follow and what was assumed, in sentences.

    A preset's name wins over a file of that name in the current directory (write ``./demo`` for the file).
    Raises ``ConfigError`` naming the file, the line and the key.
    """
    if path_or_preset in presets():
        text = (_folder() / f"{path_or_preset}.toml").read_text(encoding="utf-8")
        return parse_cluster(text, f"preset {path_or_preset}"), ()
    path = Path(path_or_preset)
    if problem := path_problem(str(path.absolute())):
        raise ConfigError(path_or_preset[:_SHOWN], f"names no file: {problem}")
    if path.is_dir():
        path /= "slurm.conf"
    if not path.is_file():
        known = ", ".join(presets())
        hint = did_you_mean(path_or_preset, presets())
        raise ConfigError(path_or_preset, f"no such file, and no such preset (presets: {known}){hint}")
    if path.suffix.lower() == ".toml":
        return parse_cluster(_text(path), str(path)), ()
    report = inspect_slurm_conf(path)
    return report.config, (*report.unmodelled, *report.assumed)


def parse_cluster(text: str, source: str) -> ClusterConfig:
    """The cluster that a TOML text describes; ``source`` names it in messages. Raises ``ConfigError``."""
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise ConfigError(_place_of_syntax_error(str(error), text, source), f"not TOML: {error}") from error
    config = _build(document, text, source)
    _check(config, text, source)
    return config


def _place_of_syntax_error(message: str, text: str, source: str) -> str:
    """``file:line``; ``tomllib`` (before Python 3.14) has the line only in its message."""
    if "at end of document" in message:
        return f"{source}:{len(text.splitlines())}"
    line = re.search(r"at line (\d+)", message)
    return f"{source}:{line[1]}" if line else source


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error


def _build(document: dict[str, Any], text: str, source: str) -> ClusterConfig:
    try:
        return build(ClusterFile.model_validate(document), source)
    except ValidationError as error:
        raise _config_error(error, text, source) from error


def _check(config: ClusterConfig, text: str, source: str) -> None:
    for fault in faults(config):
        raise ConfigError(_where(fault.path, text, source), fault.problem)


def _config_error(error: ValidationError, text: str, source: str) -> ConfigError:
    """The first error in the file's order, with its line; the others are counted."""
    line = line_finder(text)
    found = sorted(faults_of(error), key=lambda fault: line(fault.path))
    return ConfigError(_where(found[0].path, text, source), _problem(found[0]) + more_faults(found))


def _problem(fault: Fault) -> str:
    if fault.kind == "extra_forbidden":
        return f"no such key{did_you_mean(str(fault.path[-1]), _valid_keys(fault.path))}"
    if fault.kind == "missing":
        return "this key is needed"
    return fault.said


def _valid_keys(path: KeyPath) -> tuple[str, ...]:
    section = SECTIONS.get(str(path[0])) if len(path) > 1 else None
    return tuple(section.model_fields) if section else tuple(SECTIONS)


def _where(path: KeyPath, text: str, source: str) -> str:
    line = line_of(text, path)
    key = ".".join(f"[{part + 1}]" if isinstance(part, int) else part for part in path).replace(".[", "[")
    return f"{source}:{line}: {key}" if line else f"{source}: {key}"
