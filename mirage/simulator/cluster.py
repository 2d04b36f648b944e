"""The simulated cluster's configuration: the part of slurm.conf and of the accounts that shapes schedules.

Names and defaults are Slurm's (man slurm.conf). All times are in seconds, whatever unit Slurm's files use.
``with_nodes`` gives the same cluster with another number of nodes, for stress runs and for clusters that grew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, get_args

from mirage.domain.errors import BadSpelling, ConfigError
from mirage.domain.job import UNLIMITED, Seconds
from mirage.slurm.conf import read_version


class Scheduling(StrEnum):
    """The algorithm that starts pending jobs."""

    SLURM = "slurm"
    """Multifactor priority, main loop and backfill on nodes, as slurmctld does."""
    EASY = "easy"
    """One pool of CPUs, first come first served with EASY backfill, as in the literature."""
    FIFO = "fifo"
    """One pool of CPUs, first come first served, no backfill."""


class FairShare(StrEnum):
    """Algorithm that turns usage into the fair-share factor."""

    NONE = "none"
    CLASSIC = "classic"
    """2 ** -(effective usage / normalised shares / dampening); PriorityFlags=NO_FAIR_TREE."""
    FAIR_TREE = "fair-tree"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Identical nodes (one NodeName line)."""

    names: tuple[str, ...]
    cpus: int = 1
    memory_mb: int = 0
    """0: memory is not scheduled on these nodes."""
    gres: tuple[tuple[str, int], ...] = ()
    """Name and count of a GRES, such as ``("gpu:a100", 3)``."""
    features: tuple[str, ...] = ()
    weight: int = 1
    down: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """Attributes of a partition, as in a PartitionName line of slurm.conf."""

    name: str
    nodes: tuple[str, ...]
    max_time: Seconds = UNLIMITED
    default_time: Seconds = 0
    """0: the partition's ``max_time``."""
    max_nodes: int = 0
    """Most nodes a job may ask for; 0: as many as the partition has."""
    min_nodes: int = 0
    priority_tier: int = 1
    priority_job_factor: int = 1
    exclusive: bool = False
    """Whole nodes only (OverSubscribe=EXCLUSIVE or SelectType=select/linear)."""
    over_time_limit: Seconds = -1
    """-1: the cluster's."""
    qos: str = ""
    """Partition QOS: its limits hold for every job of the partition."""
    default: bool = False
    up: bool = True
    billing_weights: tuple[tuple[str, float], ...] = ()
    """TRESBillingWeights; empty: one per CPU."""


@dataclass(frozen=True, slots=True)
class TresLimit:
    """Ceilings on resources in use; names as Slurm's TRES (``cpu``, ``node``, ``mem``, ``gres/gpu:a100``)."""

    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service: priority and limits. -1 everywhere: no limit."""

    name: str
    priority: int = 0
    max_wall: Seconds = -1
    grp_jobs: int = -1
    grp_submit: int = -1
    grp_tres: TresLimit = TresLimit()
    max_jobs_per_user: int = -1
    max_submit_per_user: int = -1
    max_tres_per_user: TresLimit = TresLimit()
    max_jobs_per_account: int = -1
    max_tres_per_account: TresLimit = TresLimit()
    max_tres_per_job: TresLimit = TresLimit()


@dataclass(frozen=True, slots=True)
class Association:
    """One row of the account tree: an account (``user`` empty) or a user in an account. -1: no limit."""

    account: str
    user: str = ""
    parent: str = ""
    """Parent account; empty: root. A user's parent is its account."""
    shares: int = 1
    max_jobs: int = -1
    """For a user: MaxJobs."""
    max_submit: int = -1
    grp_jobs: int = -1
    grp_submit: int = -1
    grp_tres: TresLimit = TresLimit()
    max_wall: Seconds = -1
    priority: int = 0
    usage: float = 0.0
    """Decayed usage at the start, in billing-seconds."""


SlurmRules = Literal["22.05", "23.11", "24.11", "25.05", "26.05"]
"""Slurm's releases from which on passes go another way."""
OLDEST_RULES: SlurmRules = "22.05"


def rules_of(version: str) -> SlurmRules | None:
    """The rules that Slurm ``version``, such as 24.11.5, goes by; ``None`` where it says no version."""
    try:
        release = read_version(version)
    except BadSpelling:
        return None
    rules: tuple[SlurmRules, ...] = get_args(SlurmRules)
    return max((each for each in rules if read_version(each) <= release), default=OLDEST_RULES)


@dataclass(frozen=True, slots=True)
class SchedulerParameters:
    """SchedulerParameters and the sched/backfill plugin; defaults as documented for Slurm 22.05 and later."""

    backfill: bool = True
    bf_interval: Seconds = 30
    bf_window: Seconds = 1440 * 60
    bf_resolution: Seconds = 60
    bf_max_job_test: int = 500
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_array_resv: int = 20
    bf_max_job_start: int = 0
    bf_min_age_reserve: Seconds = 0
    bf_min_prio_reserve: int = 0
    bf_window_linear: Seconds = 0
    """0: the planner's precision starts at 30 s and doubles with every group of running jobs it removes."""
    bf_continue: bool = False
    """Read, without effect: a simulated pass is never interrupted, as bf_continue would have it."""
    default_queue_depth: int = 100
    sched_interval: Seconds = 60
    batch_sched_delay: Seconds = 3
    over_time_limit: Seconds = 0
    max_array_tasks: int = 0
    """MaxArraySize; read, not enforced: arrays of a trace come as tasks."""


OUTWEIGHED = 100
"""Fair share decides alone from this multiple of the age weight on (LS6, docs/benchmarks/handovers.md)."""


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """priority/multifactor. All weights zero: first in, first out (priority/basic)."""

    age: int = 0
    fair_share: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    association: int = 0
    tres: tuple[tuple[str, float], ...] = ()
    """PriorityWeightTRES."""
    max_age: Seconds = 7 * 86_400
    calc_period: Seconds = 300
    decay_half_life: Seconds = 7 * 86_400
    """0: usage never decays."""
    favor_small: bool = False
    small_relative_to_time: bool = False
    accrue_always: bool = False
    """Age counts since submission; else while eligible (``enforce_limits``) or since first eligible (without)."""
    fair_share_algorithm: FairShare = FairShare.FAIR_TREE
    dampening: int = 1

    @property
    def in_turn(self) -> bool:
        """Whether nothing weighs: first come, first served."""
        return not (
            self.age
            or self.fair_share
            or self.job_size
            or self.partition
            or self.qos
            or self.association
            or self.tres
        )

    @property
    def shares_outweigh_age(self) -> bool:
        """Whether fair share decides whatever has waited how long: submitting early gains next to nothing then."""
        return self.fair_share > 0 and self.fair_share >= OUTWEIGHED * self.age


@dataclass(frozen=True, slots=True)
class Reservation:
    """An advance reservation. Jobs of others do not run on its nodes between ``start`` and ``end``."""

    name: str
    start: Seconds
    end: Seconds
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A change of nodes' state at a time."""

    time: Seconds
    nodes: tuple[str, ...]
    state: str
    """``down`` (kills what runs there), ``drain`` (lets it finish) or ``resume``."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Everything the simulated controller needs to know of a cluster."""

    name: str
    nodes: tuple[NodeGroup, ...]
    partitions: tuple[Partition, ...]
    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] = ()
    default_association: Association = Association(account="")
    """Template (shares, limits) for users without a row (``enforce_associations`` off)."""
    enforce_associations: bool = False
    enforce_limits: bool = True
    """AccountingStorageEnforce has ``limits``. As in slurmctld this also decides what forgets a job's age."""
    scheduler: SchedulerParameters = SchedulerParameters()
    priority: PriorityWeights = PriorityWeights()
    reservations: tuple[Reservation, ...] = ()
    node_events: tuple[NodeEvent, ...] = ()
    scheduling: Scheduling = Scheduling.SLURM
    slurm: SlurmRules = OLDEST_RULES
    """Slurm release whose rules the schedulers' passes follow; the differences: docs/fidelity.md."""
    boot: Seconds = 0
    """When slurmctld started: what it does periodically counts from there."""
    source: str = field(default="", compare=False)

    @property
    def node_count(self) -> int:
        """Number of nodes, those that are down included."""
        return sum(len(group.names) for group in self.nodes)

    @property
    def cpu_count(self) -> int:
        """Number of CPUs of all nodes, those that are down included."""
        return sum(group.cpus * len(group.names) for group in self.nodes)


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
