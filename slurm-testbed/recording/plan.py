"""A workload before it is run: jobs, later changes of them, and its cluster."""

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
    """Seconds that it would run without a time limit."""
    account: str = ""
    nodes: int = 1
    cpus: int = 1
    """CPUs on each node."""
    gres: str = ""
    """GPUs or NPUs on each node, such as ``gpu:a100:2``."""
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
    """Its name in Slurm; singletons of one series share it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change at a time, of an earlier job or of the cluster."""

    at: int
    kind: str
    """``hold``, ``release``, ``nice``, ``cancel``, ``reserve``, ``down``, ``drain``, ``resume``."""
    job: str = ""
    value: str = ""
    """``nice``: the new value; ``reserve``: name, start, end and nodes, comma-separated; else nodes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """All that a recording needs."""

    name: str
    nodes: str
    """Number of nodes of each kind, as ``testbed start --nodes`` takes them."""
    jobs: tuple[PlannedJob, ...]
    changes: tuple[Change, ...] = ()
    conf_lines: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Lines for sacctmgr, after the testbed's own."""
    seed: int = 0
    expected: Mapping[str, Expected] = field(default_factory=dict)
    """Expected starts by name of the job; tasks of an array are NAME.0, NAME.1 and so on."""

    @property
    def users(self) -> tuple[str, ...]:
        """The submitting user."""
        return tuple(sorted({job.user for job in self.jobs}))
