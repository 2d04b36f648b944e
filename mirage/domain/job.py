"""Jobs as Slurm knows them: states, requests, dependencies, generic resources.

Imports no package of others: all helpers of users import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple, NewType

from mirage.domain.errors import BadSpelling

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_GRES = "none"
"""Slurm's own word for no generic resources."""


def gres_class(amounts: Iterable[tuple[str, int]], nodes: int = 1) -> tuple[str, int]:
    """Kinds such as ``gpu:a100`` or ``gpu,nvme`` (GPUs first), and how many of the first each node has.

    ``amounts`` are totals over ``nodes``; shares are rounded up. Without any: ``NO_GRES`` and 0.
    """
    found = sorted((name.partition(":")[0] != "gpu", name, amount) for name, amount in amounts if amount > 0)
    if not found:
        return NO_GRES, 0
    return ",".join(dict.fromkeys(name for _, name, _ in found)), -(-found[0][2] // max(nodes, 1))


JobId = NewType("JobId", int)
"""A Slurm job id (of one array task, where arrays are expanded)."""

HIGHEST_JOB_ID = 2**32 - 3
"""Job IDs have 32 bits; the two highest values are Slurm's NO_VAL and INFINITE."""


def is_job_id(number: int) -> bool:
    """Whether a job can have this ID."""
    return 1 <= number <= HIGHEST_JOB_ID


def job_id_of(number: int) -> JobId:
    """A number from outside as a job ID. Raises ``BadSpelling`` for a number that no job can have.

    One impossible ID in a list makes Slurm's commands reject the list, and with it all other jobs in it.
    """
    if not is_job_id(number):
        raise BadSpelling(str(number), f"is not a job ID (1 to {HIGHEST_JOB_ID})")
    return JobId(number)


Seconds = int
"""Whole seconds; times are seconds since the Unix epoch, UTC."""

UNLIMITED: Seconds = 366 * 86_400
"""Time limit standing for Slurm's UNLIMITED / INFINITE; Slurm's planner also takes a year."""

NEVER: Seconds = 1 << 61
"""A time later than every other: "not yet known" for starts and ends."""

ABSENT = -1
"""A time or a count that the source does not have."""

NO_RESOURCE_LIMIT = -1
"""A resource limit (``ulimit``) that is unlimited."""


class JobState(IntEnum):
    """Slurm's base job states (numbers as in slurm.h)."""

    PENDING = 0
    RUNNING = 1
    SUSPENDED = 2
    COMPLETED = 3
    CANCELLED = 4
    FAILED = 5
    TIMEOUT = 6
    NODE_FAIL = 7
    PREEMPTED = 8
    BOOT_FAIL = 9
    DEADLINE = 10
    OUT_OF_MEMORY = 11

    @property
    def finished(self) -> bool:
        """Whether the job has left the queue for good."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED)


_FAILED_LAUNCHES = frozenset({"launch failed requeued held", "user env retrieval failed requeued held"})


def is_failed_launch(reason: str) -> bool:
    """Whether Slurm holds a job, as its owner could, because a node did not start it (slurmctld/job_mgr.c)."""
    return reason.replace("_", " ") in _FAILED_LAUNCHES


class DependencyKind(IntEnum):
    """Slurm's ``--dependency`` types."""

    AFTER = 0
    AFTERANY = 1
    AFTEROK = 2
    AFTERNOTOK = 3
    SINGLETON = 4


@dataclass(frozen=True, slots=True)
class Dependency:
    """One condition of ``--dependency``; all conditions of a job must hold (Slurm's comma)."""

    kind: DependencyKind
    """The event that must have happened."""
    job_id: JobId = JobId(0)
    """To which job; 0 where the kind names none."""
    delay: Seconds = 0
    """``after:ID+minutes``, here in seconds; counted from the start of ``job_id``."""


WARNED_EARLY = 60
"""Seconds by which Slurm may send the signal of ``--signal`` before its time (man sbatch)."""


class SignalReach(StrEnum):
    """Which processes of a job get a signal."""

    BATCH = "batch"
    """The batch shell alone, as with ``--signal=B:``."""
    STEPS = "steps"
    """The steps and not the batch shell, as with ``--signal`` without ``B:``."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class WarnSignal:
    """``sbatch --signal``: Slurm warns the job before its limit ends it (up to a minute earlier than asked)."""

    name: str = "USR1"
    """Signal name such as USR1 or TERM."""
    lead: Seconds = 300
    """Seconds before the time limit."""
    batch_only: bool = False
    """Only the batch shell is signalled (``B:``), not the steps."""

    @property
    def spelling(self) -> str:
        """Format for ``--signal``, such as ``B:USR1@300``."""
        return f"{'B:' if self.batch_only else ''}{self.name}@{self.lead}"


@dataclass(frozen=True, slots=True)
class BatchScript:
    """Script of a job, with arguments, options and environment, as its owner wrote it."""

    text: str
    """The script, ``#SBATCH`` lines included."""
    options: tuple[str, ...] = ()
    """``sbatch`` options that the request has no field for, such as ``--mail-type=END``; passed on as they are."""
    environment: tuple[tuple[str, str], ...] = ()
    """The whole environment of the submission, so that a job gets what its owner had, not what a daemon has."""
    directory: str = ""
    """Working directory of the job, where it writes its output."""
    arguments: tuple[str, ...] = ()
    """The script's ``$1``, ``$2`` and so on."""
    umask: int | None = None
    """Of the shell that submitted; ``None``: not known, the submitting process's own."""
    resource_limits: tuple[tuple[str, int], ...] = ()
    """Soft limits of that shell by Slurm's names, such as ``("NOFILE", 1024)``; empty: not known.

    ``NO_RESOURCE_LIMIT`` stands for unlimited.
    """
    process_nice: int | None = None
    """The nice value of that shell, which is not ``--nice`` of the job; ``None``: not known."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to Slurm as with ``sbatch``. Resources are per node; names are the cluster's own."""

    name: str
    """Name of the job."""
    user: str
    """Owner of the job."""
    limit: Seconds
    """Time limit."""
    nodes: int = 1
    """Number of nodes."""
    partition: str = ""
    """Empty: the cluster's default partition."""
    account: str = ""
    """Empty: the user's default one."""
    qos: str = ""
    """Empty: the default one."""
    cpus_per_node: int = 0
    """0: whole nodes where the partition allocates whole nodes, else one CPU."""
    memory_mb_per_node: int = 0
    """0: what the partition gives."""
    gres_per_node: tuple[tuple[str, int], ...] = ()
    """(name, count) pairs such as ``("gpu:a100", 4)`` or ``("npu", 2)``."""
    features: tuple[str, ...] = ()
    """Node features that must all be present (``--constraint=a&b``)."""
    exclusive: bool = False
    """No other job on its nodes."""
    begin: Seconds = 0
    """Not eligible before this time; 0 means now."""
    held: bool = False
    """Held until a user releases it."""
    nice: int = 0
    """Amount that is subtracted from the job's priority."""
    dependencies: tuple[Dependency, ...] = ()
    """All of them have to hold."""
    reservation: str = ""
    """Which to run in; empty: none."""
    node_list: str = ""
    """Slurm's host list of nodes that must all be among the job's (``--nodelist``); empty: any."""
    requeue: bool | None = None
    """Whether Slurm may requeue it after a node failure; ``None``: what the site's ``JobRequeue`` says."""
    warn: WarnSignal | None = None
    """A signal before its limit."""
    tag: str = ""
    """Deterministic mark carried as the job's comment; links use ``mirage:<chain>:<n>``."""
    batch: BatchScript | None = None
    """The batch script; a simulated cluster needs none."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """Changes of a pending job by its owner; ``None`` leaves a value unchanged."""

    held: bool | None = None
    nice: int | None = None
    """0 or more: only operators may go below."""
    begin: Seconds | None = None
    """Not eligible before this time; 0: immediately."""
    node_list: str | None = None
    """Nodes that must be among the job's; empty: any."""
    dependencies: tuple[Dependency, ...] | None = None
    """All of them have to hold."""


class PastRun(NamedTuple):
    """A run of a job that has ended."""

    submit: Seconds
    """When the job was put into the queue for it."""
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class Job:
    """One job as seen on the cluster; unknown times are ``ABSENT``."""

    job_id: JobId
    name: str
    user: str
    partition: str
    nodes: int
    limit: Seconds
    state: JobState
    submit: Seconds
    start: Seconds = ABSENT
    end: Seconds = ABSENT
    """When it ended; for a running job when its limit will end it."""
    exit_code: int = 0
    reason: str = ""
    """Slurm's pending reason or the cause of its end."""
    tag: str = ""
    expected_start: Seconds = ABSENT
    """Slurm's own plan for a pending job (``squeue --start``); ABSENT when it has none."""
    held: bool = False
    """Pending, and held by its owner."""
    nice: int = 0
    node_list: str = ""
    """Slurm's host list: the nodes it runs or ran on; pending: those that it must have."""
    completing: bool = False
    """The job has ended, and its nodes are still being cleaned up."""
    past_runs: tuple[tuple[Seconds, Seconds, Seconds], ...] = ()
    """Of a job that was requeued: its runs before this one (``PastRun``), the first one first."""
    runs_untold: bool = False
    """The job was requeued, and accounting does not answer about the runs before this one."""
    begin: Seconds = ABSENT
    """Of a pending job that is put off, by its owner or as it was requeued: when it may start at the earliest."""
