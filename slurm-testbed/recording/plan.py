"""A workload before it is played: jobs, what is done to them later, and the cluster it belongs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Expected = tuple[str, Any]
"""When a job must start: at the ``submit``, ``start`` or ``end`` of a job that is named, at the ``first end`` of
an array's tasks, or ``at`` a time of the workload; or that it is ``refused`` or ``never`` starts.
"""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One submission. ``at`` and ``begin`` are Slurm's seconds since the workload's first time."""

    name: str
    at: int
    user: str
    partition: str
    limit: int
    """Minutes, as Slurm keeps them."""
    runtime: int
    """Seconds it would run if its limit allowed."""
    account: str = ""
    nodes: int = 1
    cpus: int = 1
    """On each node."""
    gres: str = ""
    """On each node, such as ``gpu:a100:2``."""
    exclusive: bool = False
    features: str = ""
    node_list: str = ""
    nice: int = 0
    held: bool = False
    begin: int = 0
    depends_on: str = ""
    """The name of a job submitted before."""
    dependency: str = "afterok"
    singleton: bool = False
    reservation: str = ""
    array: int = 0
    """Tasks; 0: no array."""
    most_at_once: int = 0
    job_name: str = ""
    """What Slurm calls it; singletons of one series share it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is done at a time to a job that was submitted before, or to the cluster."""

    at: int
    kind: str
    """``hold``, ``release``, ``nice``, ``cancel``, ``reserve``, ``down``, ``drain``, ``resume``."""
    job: str = ""
    value: str = ""
    """``nice``: the new value; ``reserve``: name, start, end and nodes, joined by commas; nodes else."""


@dataclass(frozen=True, slots=True)
class Workload:
    """All that a recording needs."""

    name: str
    nodes: str
    """Of each kind, as ``testbed start --nodes`` takes them."""
    jobs: tuple[PlannedJob, ...]
    changes: tuple[Change, ...] = ()
    conf_lines: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Lines for sacctmgr, after the testbed's own."""
    seed: int = 0
    expected: Mapping[str, Expected] = field(default_factory=dict)
    """By the names of jobs; tasks of an array are NAME.0, NAME.1 and so on."""

    @property
    def users(self) -> tuple[str, ...]:
        """Who submits."""
        return tuple(sorted({job.user for job in self.jobs}))
