"""The daemon's connection to a cluster: how it runs Slurm's commands there, and which Slurm it speaks to."""

from __future__ import annotations

import os
import pwd
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.background_files import BackgroundFiles, local_files
from mirage.control.clocks import CorrectedClock, WallClock, read_clock
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from mirage.backends.agent_queue import AgentQueue
    from mirage.backends.links_only import JobIdentity
    from mirage.backends.marked_jobs import Adopter
    from mirage.config.model import ClusterConnectionSection, Config
    from mirage.control.clockcheck import ClockCheck
    from mirage.control.clocks import RealTimeClock
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import (
        Actuator,
        Cluster,
        JobHistory,
        LinkAccounting,
        NodeSharing,
        OwnerLimitSource,
        StartEstimator,
    )
    from mirage.simulator.cluster import ClusterConfig

_PASSED_ON = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH")
"""Variables of the daemon's environment that Slurm's commands get: search paths, and nothing about a job."""

History = Callable[["Seconds", "Seconds"], "JobTable"]
"""Jobs that ran or ended between two times, at most a day apart, by the accounting."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Information on a cluster beyond its queue, and how to refresh it."""

    history: History | None = None
    """``None``: the accounting is not asked."""
    links: LinkAccounting | None = None
    """Asked after a restored backup; ``None``: nothing is known of links that have left the queue."""
    jobs: JobHistory | None = None
    """``None``: those that the history brought and the database keeps."""
    standings: OwnerLimitSource | None = None
    sharing: NodeSharing | None = None
    """``None``: nothing is known of what runs next to a job on its nodes."""
    refresh: Callable[[], str] | None = None
    """Asks for standings again where that is due; not for the loop's thread. Says what it did."""
    hides_jobs: Callable[[], bool] = lambda: True
    """Whether users may not see the jobs of others, or that is not known. Waits for nothing."""
    name: Callable[[], str] | None = None
    """The cluster's name, empty if Slurm does not report it; raises ``ClusterUnavailable``. ``None``: unknown."""
    description: Callable[[], ClusterConfig] | None = None
    """The cluster as its configuration describes it; raises ``ConfigError`` and ``ClusterUnavailable``."""
    clock: ClockCheck | None = None
    """Keeps the world's clock in step with the controller's; ``None``: that one cannot be asked."""
    copied: Callable[[Path], str] | None = None
    """The same for another program: what its ``--cluster`` takes, once files were laid into the directory."""


NOTHING_KNOWN = ClusterInfo()


Identify = Callable[["JobId", str], "JobIdentity"]
"""Raises ``UnknownJob``, ``NotPermitted`` and ``ClusterUnavailable``. Any thread."""


def takes_any(_request: JobRequest) -> None:
    """The check of a way to submit that carries every option."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """Connection of the daemon to a cluster."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator
    clock: RealTimeClock
    lore: ClusterInfo = NOTHING_KNOWN
    user: str = ""
    """User as whom the daemon submits in acting mode ``own``; empty: not known."""
    desk: AgentQueue | None = None
    """Queue from which users' agents fetch their requests, in acting mode ``agent``."""
    files: BackgroundFiles = field(default_factory=local_files)
    """Checks of users' files, by an account that may see them."""
    check_request: Callable[[JobRequest], None] = takes_any
    """Raises ``SubmissionRejected`` for what no link could be submitted with; may take seconds."""
    identify: Identify | None = None
    """Asks Slurm about a job of an owner; may take seconds. ``None``: no job of a user's own can be there."""
    adopter: Adopter | None = None
    """Adopts jobs of plain ``sbatch``; ``None``: no process of a user is there that could."""


def slurm_clock(section: ClusterConnectionSection) -> CorrectedClock:
    """The clock of the Slurm that the daemon speaks to. Raises ``ConfigError``."""
    return CorrectedClock(read_clock(Path(section.clock)) if section.clock else WallClock())


def own_user() -> str:
    """The name of the user that this process runs as. Raises ``ConfigError`` where the machine has none for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        problem = (
            f"UID {os.getuid()} has no name on this machine; add the account, or run the daemon as another user"
        )
        raise ConfigError("user", problem) from None


def command_environment(section: ClusterConnectionSection) -> dict[str, str]:
    """In which Slurm's commands run."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed_on | ({"SLURM_CONF": section.slurm_conf} if section.slurm_conf else {})


_HOLDS = 3_600.0
_RETRIED = 60.0
"""Real seconds after which a Slurm that did not say its version is asked again."""
_VERSION = re.compile(r"(?<![0-9])[0-9]++\.[0-9]++[.0-9a-z-]*")


class SlurmVersion:
    """The backend and Slurm's version, asked for periodically. For every thread but the loop's."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: str | None = None
        self._until = 0.0

    def __call__(self) -> tuple[str, str | None]:
        """The version is ``None`` where it is not known."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._asked()
                self._until = time.monotonic() + (_HOLDS if self._known else _RETRIED)
            return self._config.cluster.backend, self._known

    def _asked(self) -> str | None:
        if self._config.cluster.backend not in ("cli", "pyslurm"):
            return None
        from mirage.backends.execution import CommandRunner

        section = self._config.cluster
        try:
            answer = CommandRunner(command_environment(section), section.timeout).run(["scontrol", "--version"])
        except MirageError:
            return None
        found = _VERSION.search(answer.out)
        return found[0] if found and not answer.status else None
