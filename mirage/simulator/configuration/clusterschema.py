"""The cluster file's tables as pydantic models: the border between TOML and the frozen configuration.

Only what the file says is passed on (``given``); every default stands once, in ``mirage.simulator.cluster``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mirage.domain.errors import MirageError
from mirage.simulator.cluster import OLDEST_RULES, SlurmRules, TresLimit, rules_of
from mirage.simulator.configuration import spellings

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_COUNT = 10_000_000
MAX_CPUS = 65_533
MAX_MEMORY_MB = 1 << 40
MAX_WEIGHT = (1 << 32) - 1
MAX_INSTANT = 1 << 40

Value = TypeVar("Value")


def _read(reader: Callable[[str], Value], text: str) -> Value:
    """``reader(text)``; Mirage's own errors become ValueError, to which pydantic gives the key."""
    try:
        return reader(text)
    except MirageError as error:
        raise ValueError(str(error)) from error


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _duration(value: object) -> object:
    if isinstance(value, str) and value.strip().isdigit():
        number = value.strip()
        raise ValueError(f"minutes or seconds? Write {number} (a number is seconds) or {number + 'm'!r} (minutes)")
    if isinstance(value, str):
        return _read(spellings.duration, value)
    if _whole(value):
        return value
    raise ValueError('expected a duration: "2-00:00:00", "48h", "UNLIMITED", or a number of seconds')


def _instant(value: object) -> object:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if _whole(value):
        return value
    raise ValueError("expected a time such as 2023-02-01T12:00:00Z, or seconds since 1970")


def _memory(value: object) -> object:
    if isinstance(value, str):
        return _read(spellings.memory_mb, value)
    if _whole(value):
        return value
    raise ValueError('expected memory such as "256G", or a number of megabytes')


def _texts(value: object, example: str) -> list[str]:
    parts = [value] if isinstance(value, str) else value
    if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
        return parts
    raise ValueError(f"expected text such as {example}, or a list of such texts")


def _hosts(value: object) -> object:
    return tuple(name for text in _texts(value, '"c[001-076]"') for name in _read(spellings.hosts, text))


def _gres(value: object) -> object:
    return tuple(pair for text in _texts(value, '"gpu:a100:3"') for pair in _read(spellings.gres, text))


def _tres_limit(value: object) -> object:
    ceiling = _read(spellings.tres_limit, ",".join(_texts(value, '"node=8,gres/gpu:a100=24"')))
    _only_followed(tuple(name for name, _ in ceiling.limits))
    return ceiling


def _weights(value: object) -> object:
    weights = _read(spellings.tres_weights, ",".join(_texts(value, '"CPU=1.0,GRES/gpu=2.0"')))
    _only_followed(tuple(name for name, _ in weights))
    return weights


def _only_followed(names: tuple[str, ...]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{name} is given twice; name each kind once")
        if not spellings.followed(name):
            raise ValueError(f"{name} is not counted in the simulator: only cpu, mem, node and gres/NAME are")


def _name(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip()):
        raise ValueError("expected a name without blanks around it")
    return value


def _release(value: object) -> object:
    rules = rules_of(value) if isinstance(value, str) else None
    if rules is None:
        raise ValueError('expected a release of Slurm such as "24.11"')
    return rules


Name = Annotated[str, BeforeValidator(_name)]
Duration = Annotated[int, BeforeValidator(_duration), Field(ge=0)]
Limit = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Weight = Annotated[int, Field(ge=0, le=MAX_WEIGHT)]
Factor = Annotated[int, Field(ge=0, le=65_533)]
"""PriorityTier and PriorityJobFactor: 16 bits in Slurm."""
Instant = Annotated[int, BeforeValidator(_instant), Field(ge=0, le=MAX_INSTANT)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts)]
Gres = Annotated[tuple[tuple[str, int], ...], BeforeValidator(_gres)]
Release = Annotated[SlurmRules, BeforeValidator(_release)]
Ceiling = Annotated[TresLimit, BeforeValidator(_tres_limit)]
Weights = Annotated[tuple[tuple[str, float], ...], BeforeValidator(_weights)]
Texts = Annotated[list[Name], Field(default_factory=list)]


class Section(BaseModel):
    """A table of the cluster file; unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    def given(self, *leave_out: str) -> dict[str, Any]:
        """The keys that the file sets, with their values as they came out of validation."""
        set_here = self.model_fields_set - set(leave_out)
        values = {key: getattr(self, key) for key in set_here}
        return {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}


class ClusterSection(Section):
    """Keys of ``[cluster]``: name, algorithm, and what holds for the whole cluster."""

    name: Name
    scheduling: Literal["slurm", "easy", "fifo"] = "slurm"
    over_time_limit: Duration = 0
    enforce_associations: bool = False
    enforce_limits: bool = True
    slurm: Release = OLDEST_RULES


class NodeSection(Section):
    """``[[nodes]]``: identical nodes."""

    names: Hosts
    cpus: Annotated[int, Field(ge=1, le=MAX_CPUS)] = 1
    memory: Annotated[int, BeforeValidator(_memory), Field(ge=0, le=MAX_MEMORY_MB)] = 0
    gres: Gres = ()
    features: Texts
    weight: Weight = 1
    down: bool = False


class PartitionSection(Section):
    """Keys of one ``[[partitions]]``, as in a PartitionName line of slurm.conf."""

    name: Name
    nodes: Hosts
    max_time: Duration = 0
    default_time: Duration = 0
    max_nodes: Limit = 0
    min_nodes: Limit = 0
    priority_tier: Factor = 1
    priority_job_factor: Factor = 1
    exclusive: bool = False
    over_time_limit: Duration = 0
    qos: str = ""
    default: bool = False
    up: bool = True
    billing_weights: Weights = ()


class QosSection(Section):
    """Keys of one ``[[qos]]``: its priority and its limits."""

    name: Name
    priority: Weight = 0
    max_wall: Duration = 0
    grp_jobs: Limit = 0
    grp_submit: Limit = 0
    grp_tres: Ceiling = TresLimit()
    max_jobs_per_user: Limit = 0
    max_submit_per_user: Limit = 0
    max_tres_per_user: Ceiling = TresLimit()
    max_jobs_per_account: Limit = 0
    max_tres_per_account: Ceiling = TresLimit()
    max_tres_per_job: Ceiling = TresLimit()


class DefaultAssociationSection(Section):
    """``[default_association]``: shares and limits of users without a row."""

    shares: Limit = 1
    max_jobs: Limit = 0
    max_submit: Limit = 0
    grp_jobs: Limit = 0
    grp_submit: Limit = 0
    grp_tres: Ceiling = TresLimit()
    max_wall: Duration = 0
    priority: Weight = 0


class AssociationSection(DefaultAssociationSection):
    """``[[associations]]``: an account, or a user in an account."""

    account: Name
    user: str = ""
    parent: str = ""
    usage: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class SchedulerSection(Section):
    """``[scheduler]``: names as in SchedulerParameters, durations by this file's one rule."""

    backfill: bool = True
    bf_interval: Duration = 0
    bf_window: Duration = 0
    bf_resolution: Duration = 0
    bf_max_job_test: Limit = 0
    bf_max_job_user: Limit = 0
    bf_max_job_part: Limit = 0
    bf_max_job_array_resv: Limit = 0
    bf_max_job_start: Limit = 0
    bf_min_age_reserve: Duration = 0
    bf_min_prio_reserve: Weight = 0
    bf_window_linear: Duration = 0
    bf_continue: bool = False
    default_queue_depth: Limit = 0
    sched_interval: Duration = 0
    batch_sched_delay: Duration = 0
    max_array_tasks: Limit = 0


class PrioritySection(Section):
    """``[priority]``: weights and the shape of the factors."""

    age: Weight = 0
    fair_share: Weight = 0
    job_size: Weight = 0
    partition: Weight = 0
    qos: Weight = 0
    association: Weight = 0
    tres: Weights = ()
    max_age: Duration = 0
    calc_period: Duration = 0
    decay_half_life: Duration = 0
    favor_small: bool = False
    small_relative_to_time: bool = False
    accrue_always: bool = False
    fair_share_algorithm: Literal["none", "classic", "fair-tree"] = "fair-tree"
    dampening: Annotated[int, Field(ge=1, le=65_533)] = 1


class ReservationSection(Section):
    """Keys of one ``[[reservations]]``: interval, nodes, and who may use them."""

    name: Name
    start: Instant
    end: Instant
    nodes: Hosts
    users: Texts
    accounts: Texts


class NodeEventSection(Section):
    """Keys of one ``[[node_events]]``: a change of state of nodes at a given time."""

    time: Instant
    nodes: Hosts
    state: Literal["down", "drain", "resume"]


class ClusterFile(Section):
    """All tables of a cluster file."""

    cluster: ClusterSection
    nodes: Annotated[list[NodeSection], Field(min_length=1)]
    partitions: Annotated[list[PartitionSection], Field(min_length=1)]
    qos: list[QosSection] = []
    associations: list[AssociationSection] = []
    default_association: DefaultAssociationSection = DefaultAssociationSection()
    scheduler: SchedulerSection = SchedulerSection()
    priority: PrioritySection = PrioritySection()
    reservations: list[ReservationSection] = []
    node_events: list[NodeEventSection] = []


SECTIONS: dict[str, type[Section]] = {
    "cluster": ClusterSection,
    "nodes": NodeSection,
    "partitions": PartitionSection,
    "qos": QosSection,
    "associations": AssociationSection,
    "default_association": DefaultAssociationSection,
    "scheduler": SchedulerSection,
    "priority": PrioritySection,
    "reservations": ReservationSection,
    "node_events": NodeEventSection,
}
